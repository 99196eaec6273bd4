"""A model that answers from a script, also with tool calls written into the text; and an embedder without a model:
texts that share words get similar vectors."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from perdure.core.errors import ModelError, ModelUnreachable
from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.ports import EmbedPurpose
from perdure.core.runs import Usage
from perdure.core.text.words import stems

Line = ModelReply | ModelError | Callable[[ModelRequest], ModelReply]
"""One answer: a reply, an error, or a function of the request."""


def says(text: str, *, usage: Usage | None = None) -> ModelReply:
    """Return a reply with this text and no calls, which ends the run."""
    return ModelReply(parts=(Text(text),), usage=usage or Usage(input_tokens=10, output_tokens=2))


def calls(name: str, /, *further_calls: ToolCall, call_id: str = "", **arguments: Any) -> ModelReply:
    """Return a reply with a tool call, followed by `further_calls`. The model fills in an empty id."""
    call = ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
    return ModelReply(parts=(call, *further_calls), usage=Usage(input_tokens=10, output_tokens=5))


def thinks(thought: str, reply: ModelReply) -> ModelReply:
    """Return the reply with reasoning before it."""
    return replace(reply, parts=(Reasoning(thought), *reply.parts))


def fails(message: str = "the provider is down", *, kind: str = "llm_error") -> ModelError:
    """Return an error in place of a reply; `kind`: as of `ModelError`."""
    return ModelError(message, kind=kind)


class ScriptedModel:
    """`Model` that answers each request with the next line of its script, and with `otherwise` after the last.

    `requests` holds the requests for an answer, `summary_requests` those for a summary, `extraction_requests` those for
    facts, in order. Requests for a summary get `summarises`; without it they fail, and the engine makes an extract
    instead. Requests for facts get `extracts`; without it they find none.
    """

    def __init__(
        self, *script: Line, otherwise: Line | None = None, summarises: Line | None = None, extracts: Line | None = None
    ) -> None:
        self._script = list(script)
        self._otherwise = otherwise if otherwise is not None else says("OK.")
        self._summarises = summarises if summarises is not None else fails("the script has no summary")
        self._extracts = extracts if extracts is not None else says('{"entities": [], "facts": [], "certain": true}')
        self.requests: list[ModelRequest] = []
        self.extraction_requests: list[ModelRequest] = []
        self.summary_requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Note the request, and stream the next line of the script for its purpose, or raise it."""
        if request.purpose == "summary":
            self.summary_requests.append(request)
            line = self._summarises
        elif request.purpose == "extraction":
            self.extraction_requests.append(request)
            line = self._extracts
        else:
            self.requests.append(request)
            line = self._script.pop(0) if self._script else self._otherwise
        if isinstance(line, ModelError):
            raise line
        reply = line if isinstance(line, ModelReply) else line(request)
        reply = replace(reply, parts=_with_ids(reply.parts, len(self.requests)))
        for delta in _deltas(reply.parts):
            yield delta
        yield reply


def _with_ids(parts: Sequence[Part], answer: int) -> tuple[Part, ...]:
    """Return the parts of the answer with this number, with an id for each call that has none."""
    return tuple(
        replace(part, call_id=f"call_{answer}_{index}") if isinstance(part, ToolCall) and not part.call_id else part
        for index, part in enumerate(parts)
    )


def split_words(text: str) -> list[str]:
    """Return the words of a text, each with the space after it; of a long one some 200 pieces, of several words."""
    words = [piece for piece in re.findall(r"\S*\s*", text) if piece]
    size = 1 + len(words) // 200
    return ["".join(words[first : first + size]) for first in range(0, len(words), size)]


def _deltas(parts: Sequence[Part]) -> list[ModelDelta]:
    """Return the pieces in which the parts are streamed."""
    deltas: list[ModelDelta] = []
    call = 0
    for part in parts:
        match part:
            case Text(text=text):
                deltas += [ModelDelta("text", piece) for piece in split_words(text)]
            case Reasoning(text=text):
                deltas.append(ModelDelta("reasoning", text))
            case ToolCall():
                deltas.append(ModelDelta("tool_name", part.name, call, part.call_id))
                deltas.append(ModelDelta("tool_arguments", part.arguments, call, part.call_id))
                call += 1
    return deltas


_Form = Callable[[str, Mapping[str, Any]], str]


def _object(name: str, arguments: Mapping[str, Any], key: str = "arguments") -> str:
    """Return a call as a JSON object, with the arguments under `key`."""
    return json.dumps({"name": name, key: dict(arguments)}, ensure_ascii=False)


def _python(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as Python code."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


CALL_FORMS: Final[Mapping[str, _Form]] = {
    "fence": lambda name, arguments: f"```json\n{_object(name, arguments)}\n```",
    "tag": lambda name, arguments: f"<tool_call>\n{_object(name, arguments)}\n</tool_call>",
    "bare": _object,
    "prose before": lambda name, arguments: f"Sure! I'll store that.\n\n{_object(name, arguments)}",
    "list": lambda name, arguments: f"[{_object(name, arguments)}]",
    "openai": lambda name, arguments: json.dumps(
        {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": json.dumps(dict(arguments))}}]}
    ),
    "parameters": lambda name, arguments: _object(name, arguments, "parameters"),
    "arguments as a string": lambda name, arguments: json.dumps(
        {"name": name, "arguments": json.dumps(dict(arguments))}
    ),
    "python": _python,
    "tool_code": lambda name, arguments: f"```tool_code\n{_python(name, arguments)}\n```",
    "mistral": lambda name, arguments: f"[TOOL_CALLS][{_object(name, arguments)}]",
    "python_tag": lambda name, arguments: f"<|python_tag|>{_object(name, arguments, 'parameters')}",
    "missing brace": lambda name, arguments: f"```json\n{_object(name, arguments)[:-1]}\n```",
}
"""Name of a form -> the text of a call in it. Two calls in two fences are two texts of "fence"."""


def writes_call(form: str, name: str, **arguments: Any) -> ModelReply:
    """Return an answer whose text is a call in the form of this name in `CALL_FORMS`."""
    return says(CALL_FORMS[form](name, arguments))


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

HANG_S = 0.01


class ScriptedEmbedder:
    """`Embedder` and `WordEmbedder` by hashed words: a text has the same vector on every machine, the sum of those of
    its stemmed words, so the cosine of two texts grows with the words they share. `requests` holds the texts of each
    call, in order, failed ones too; `closed` says whether `close` was called. The first calls fail with `fails`."""

    def __init__(
        self, *fails: ModelError, handle: str = "test/words", dimensions: int = 64, local: bool = True
    ) -> None:
        self.handle, self.dimensions, self.local = handle, dimensions, local
        self.requests: list[tuple[str, ...]] = []
        self.closed = False
        self._errors = list(fails)
        self._failure: ModelError | None = None
        self._hangs = False

    def fail(self, error: ModelError | None = None) -> None:
        """Let every call fail with `error`, by default as unreachable, until `recover`."""
        self._failure = error or ModelUnreachable("the scripted embedder is down")

    def hang(self) -> None:
        """Let every call wait for `recover`."""
        self._hangs = True

    def recover(self) -> None:
        """Answer again; waiting calls continue."""
        self._failure, self._hangs = None, False

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        import numpy as np

        await self._record_call(texts)
        rows = np.stack([self._words(text).sum(axis=0) for text in texts]) if texts else np.zeros((0, self.dimensions))
        unit: npt.NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return unit

    async def embed_with_words(
        self, texts: Sequence[str], *, purpose: EmbedPurpose = "document"
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        import numpy as np

        rows = await self.embed(texts, purpose=purpose)
        return rows, [self._words(text).astype(np.float32) for text in texts]

    async def close(self) -> None:
        self.closed = True

    async def _record_call(self, texts: Sequence[str]) -> None:
        """Note a call; then wait or fail, if the test has asked for that."""
        self.requests.append(tuple(texts))
        await asyncio.sleep(0)  # yield to other tasks, as a real embedder does
        while self._hangs:  # noqa: ASYNC110 - `recover` may come from another thread
            await asyncio.sleep(HANG_S)
        if self._errors:
            raise self._errors.pop(0)
        if self._failure is not None:
            raise self._failure

    def _words(self, text: str) -> npt.NDArray[np.float64]:
        """Return a unit vector for each word, which depends on it alone: shape (number of words or 1, `dimensions`)."""
        import numpy as np

        rows = []
        for word in stems(text) or [text]:
            data = hashlib.shake_256(word.encode("utf-8", "surrogatepass")).digest(2 * self.dimensions)
            numbers = np.frombuffer(data, "<u2") - 32_767.5
            rows.append(numbers / np.linalg.norm(numbers))
        return np.stack(rows)
