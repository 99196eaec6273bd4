"""Choose the model of agents that are made without one.

A setting decides; else the first provider of the environment that has a model, whatever that can do; else a server on
this machine with a model that can call tools; else the built-in program. A model of such a server is tried: what the
server runs it with, whether it calls tools, how fast it is.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from perdure.core.errors import ModelError
from perdure.core.features import feature_models
from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import ToolCall, text_of, unlogged_message
from perdure.core.models import (
    EXTRACTIVE,
    Calling,
    Model,
    ModelOptions,
    ModelProgress,
    ModelReply,
    ModelRequest,
    ModelTraits,
)
from perdure.providers.discovery import LOOK_TIMEOUT_S, ModelListing, fetch_json
from perdure.providers.masking import LISTING
from perdure.providers.provider import Endpoint
from perdure.providers.traits import ServerTraits, join_traits, loaded_in, ollama_traits, props_of, served_in

PROBED_MAX = 3
"""Models of one local server that are tried: each may take seconds to load."""

NO_MODEL = "no model was found: set OPENAI_API_KEY or another provider's key, or start Ollama"

_CALLS: Mapping[Calling | None, str] = {"native": "calls tools", "text": "writes its tool calls as text, which is read"}
WITHOUT_CALLS = "memory is kept and recalled for it without its help"


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """The model of agents that are made without one.

    Args:
        handle: `provider/name`.
        reason: why, in a few words; holds no key.
        notes: what was tried before and why it was not taken, one sentence each.
        is_setting: PERDURE_MODEL names it; else it was found.
    """

    handle: str
    reason: str
    notes: tuple[str, ...] = ()
    is_setting: bool = False


def fallback_choice() -> DefaultModel:
    """The choice where no provider has a model: the built-in program, or if it is missing, a reason that says so."""
    for handle, (_, model) in feature_models().items():
        return DefaultModel(handle, model.about)
    return DefaultModel(EXTRACTIVE, NO_MODEL)


async def choose_from(
    endpoint: Endpoint,
    listing: ModelListing,
    probe: Callable[[Endpoint, str], Awaitable[ToolTrial]],
    notes: list[str],
    *,
    is_set: bool = True,
) -> DefaultModel | None:
    """A model of this provider; None adds a note that says why there is none.

    Args:
        probe: tries a tool call on a model of a local server, see `try_tools`.
        is_set: somebody gave its address, so one of its models is used, whatever trying it shows.
    """
    provider = endpoint.entry
    names = chat_models(listing.models, provider.preferred)
    # A provider that has no list at all still answers: its default model is worth a try.
    has_no_list = endpoint.has_key and bool(provider.default_model) and listing.status in (404, 405, 501)
    if endpoint.problem:
        notes.append(endpoint.problem)
    elif has_no_list:
        return DefaultModel(f"{endpoint.provider}/{provider.default_model}", f"from {endpoint.source}", tuple(notes))
    elif listing.problem:
        if provider.default_model and (not endpoint.local or (endpoint.has_key and listing.status)):
            # A key means that this provider is wanted. A new agent keeps its model for good, so a wrong key or a short
            # outage must not give it another one; its runs show the error.
            reason = f"from {endpoint.source}; it can't be asked now: {listing.problem}"
            return DefaultModel(f"{endpoint.provider}/{provider.default_model}", reason, tuple(notes))
        notes.append(listing.problem)
    elif not endpoint.local:
        name = next(iter(names), "") if listing.models else provider.default_model
        if name:
            return DefaultModel(f"{endpoint.provider}/{name}", f"from {endpoint.source}", tuple(notes))
        notes.append(f"{endpoint.address} has no chat model")
    elif not names:
        hint = ": `ollama pull qwen3` gets one" if endpoint.provider == "ollama" else ""
        notes.append(f"{endpoint.provider} at {endpoint.address} has no model yet{hint}")
    else:
        return await _choose_local(endpoint, names[:PROBED_MAX], probe, notes, is_set=is_set)
    return None


async def _choose_local(
    endpoint: Endpoint,
    names: Sequence[str],
    probe: Callable[[Endpoint, str], Awaitable[ToolTrial]],
    notes: list[str],
    *,
    is_set: bool,
) -> DefaultModel | None:
    """The first of the models `names` of a local server that calls tools, in whichever form; with `is_set` else the
    first that answers at all, or the first. Adds to `notes` why models were passed over. `probe`: see `choose_from`."""
    tried: list[tuple[str, ToolTrial]] = []
    for name in names:
        trial = await probe(endpoint, name)
        if trial.calling in _CALLS:
            reason = f"found by {endpoint.source}, and it {_CALLS[trial.calling]}"
            return DefaultModel(f"{endpoint.provider}/{name}", reason, tuple(notes))
        tried.append((name, trial))
        notes.append(f"{endpoint.provider}/{name}: it {trial.problem}")
    if not is_set:
        return None
    name, trial = next((one for one in tried if one[1].calling is not None), tried[0])
    del notes[-len(tried) :]
    reason = f"from {endpoint.source}; it {trial.problem}: {WITHOUT_CALLS}"
    return DefaultModel(f"{endpoint.provider}/{name}", reason, tuple(notes))


def chat_models(models: Sequence[str], preferred: Sequence[str]) -> list[str]:
    """The chat models, those that fit the preferred patterns first, in the order of the patterns."""
    first = [name for pattern in preferred for name in models if fnmatch.fnmatchcase(name.lower(), pattern.lower())]
    return [name for name in dict.fromkeys((*first, *models)) if is_chat_model(name)]


def is_chat_model(name: str) -> bool:
    """Whether the name is that of a chat model, as far as names tell."""
    lower = name.lower()
    return not any(word in lower for word in _NOT_CHAT)


_NOT_CHAT = (
    "embed", "whisper", "tts", "dall-e", "image", "moderation", "transcribe", "audio", "realtime", "rerank", "ocr",
    "babbage", "davinci", "sora", "bge-", "minilm", "guard", "imagen", "veo", "stable-diffusion", "flux", "voxtral",
    "gpt-3.5-turbo-instruct", "nomic", "-live", "aqa", "search-api", "deep-research", "computer-use",
)  # fmt: skip


class ServedModels(Protocol):
    """The models that this process serves itself, without a provider."""

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of these models; its guard takes the requests to them."""

    def names(self) -> Sequence[str]:
        """The names of the models that can be used now. No network, and quick."""

    def choice(self) -> DefaultModel | None:
        """The model that new agents get: before all others if a setting names it, else if no provider has one."""

    def traits(self, name: str) -> ModelTraits:
        """What is known of the model of this name."""

    def what_helps(self, name: str) -> str:
        """Advice that makes the model of this name available."""

    async def close(self) -> None:
        """End what serves the models."""


SILENCE_S = 60.0
"""How long a model that is tried may say nothing: it may have to be loaded from a disk first."""
ANSWER_TOKENS = 1_000  # a reasoning model needs some before the call

_QUESTION = 'Call the tool `note` with the text "hi". Do nothing else.'
_NOTE: Mapping[str, Any] = {
    "name": "note",
    "description": "Write a note.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """What a request with a tool showed. `problem`: why no call came, empty if one came in whichever form; `calling`:
    how the model calls tools, None: it did not answer."""

    problem: str = ""
    calling: Calling | None = None


async def try_tools(model: Model, handle: str, *, silence_s: float = SILENCE_S) -> ToolTrial:
    """Ask the model for one tool call, and wait as long as something comes. Never raises a ModelError."""
    request = ModelRequest(
        model=handle,
        system="",
        messages=(unlogged_message("user", _QUESTION),),
        tools=(_NOTE,),
        options=ModelOptions(max_output_tokens=ANSWER_TOKENS, temperature=0.0),
    )
    reply: ModelReply | None = None
    try:
        async with asyncio.timeout(silence_s) as limit:
            async for piece in model.respond(request):
                if isinstance(piece, ModelReply):
                    reply = piece
                if not (isinstance(piece, ModelProgress) and piece.stage == "waiting"):
                    limit.reschedule(asyncio.get_running_loop().time() + silence_s)
    except TimeoutError:
        return ToolTrial(f"said nothing for {silence_s:g} s")
    except ModelError as error:
        return ToolTrial(f"could not be tried: {error}")
    if reply is None:
        return ToolTrial("ended its answer without a reply")
    if any(isinstance(part, ToolCall) and _calls_note(part) for part in reply.parts):
        in_text = reply.exchange is not None and "calls_in_text" in reply.exchange.response
        return ToolTrial(calling="text" if in_text else "native")
    if _writes_note_call(text_of(reply.parts)):
        return ToolTrial(calling="text")
    return ToolTrial("did not call the tool it was asked to call", "none")


def _calls_note(call: ToolCall) -> bool:
    """Whether this is the call of `note` with "hi" that `try_tools` asks for."""
    try:
        arguments = parse_json(call.arguments, LISTING)
        return call.name == "note" and "hi" in str(arguments["text"]).lower()
    except (KeyError, TypeError, ValueError):
        return False


def _writes_note_call(text: str) -> bool:
    """Whether an answer has the call of `note` in its text, in any form: the tool's name and "hi" behind it."""
    _, name, rest = text.partition("note")
    return bool(name) and "hi" in rest and any(sign in text for sign in "{([")


async def detailed_traits(endpoint: Endpoint, name: str, listed: ServerTraits) -> ServerTraits:
    """Return what a server says of a model: `listed`, and more from its own API if it has one. Never raises."""

    async def ask(path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer at a path of the server's own API; None: an error."""
        headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.has_key else {}
        parts = urlsplit(endpoint.base_url)  # the API is under `/v1`, this is beside it
        url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/').removesuffix('/v1')}{path}"))
        answer = await fetch_json(endpoint, url, timeout_s=LOOK_TIMEOUT_S, headers=headers, body=body)
        return answer.data if answer.status == 200 else None

    match listed.get("server") or endpoint.entry.name:
        case "ollama":
            loaded, shown = await asyncio.gather(ask("/api/ps"), ask("/api/show", {"model": name}))
            return join_traits(listed, loaded_in(loaded, name), ollama_traits(shown))
        case "lmstudio":
            return join_traits(listed, served_in(await ask("/api/v0/models")).get(name, {}))
        case "llamacpp":
            return join_traits(listed, props_of(await ask("/props")))
        case _:
            return listed
