"""How much of Perdure runs for one message: `python -m benchmarks.call_trace [--list]`.

Counts the distinct functions and files of `src/perdure` that run on three paths, in all threads: an HTTP message to an
agent that uses nothing beyond a block, until its model is called; and a call of `memory_insert` and of
`archival_memory_search`, by an agent with an archive, from the model's reply until its next request. Comprehensions and
generated code, such as the constructors of dataclasses, do not count. Each path is walked once before it is counted, so
imports and first-time work stay out. `--list` prints the functions too, in the order in which they are first called.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

import perdure
from perdure import AsyncPerdure
from perdure.core.messages import ToolCall
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import calls, says

__all__ = ["CallTrace", "Tracer", "trace_paths"]

PACKAGE = f"{Path(perdure.__file__).parent}/"
MODEL = "test/traced"
FACTS = ("Ada keeps bees behind the mill.", "The ferry to Ghent leaves at nine.", "Oslo is cold in March.")
QUERIES = ("Where does Ada keep her bees?", "When does the ferry to Ghent leave?")


@dataclass
class CallTrace:
    """The functions that ran on one path, in the order in which they were first called."""

    name: str
    functions: dict[CodeType, None] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}

    def __str__(self) -> str:
        return f"{self.name:<44}{len(self.functions):>6} functions{len(self.files):>5} files"

    def lines(self) -> list[str]:
        """`file:line function` of each, in order."""
        return [
            f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno} {code.co_qualname}"
            for code in self.functions
        ]


class Tracer:
    """Collects calls between `start` and `stop`, in this thread and in those that begin later."""

    def __init__(self) -> None:
        self._trace: CallTrace | None = None

    def __enter__(self) -> Tracer:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def start(self, name: str) -> None:
        self._trace = CallTrace(name)

    def stop(self) -> CallTrace:
        trace, self._trace = self._trace, None
        assert trace is not None
        return trace

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (trace := self._trace) is None:
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and (code.co_name == "<lambda>" or code.co_name[0] != "<"):
            trace.functions.setdefault(code)


class TracedModel:
    """`Model` that answers with the next of its `replies`, and calls `on_request` before and `on_reply` after."""

    def __init__(self) -> None:
        self.replies: list[ModelReply] = []
        self.on_request: Callable[[], None] = _nothing
        self.on_reply: Callable[[], None] = _nothing

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self.on_request()
        reply = self.replies.pop(0) if self.replies else says("Good.")
        self.on_reply()
        yield reply


def _nothing() -> None:
    pass


async def trace_paths(folder: Path) -> list[CallTrace]:
    """The three paths, each counted when it is walked for the second time."""
    model = TracedModel()
    with Tracer() as tracer:
        settings = replace(Settings(), model=MODEL)
        async with await AsyncPerdure.open(folder / "p.db", models={MODEL: model}, settings=settings) as library:
            agent = await library.create_agent(
                "Ada", blocks={"notes": "The mill is old."}, tools=["memory_insert", "archival_memory_search"]
            )
            plain = await library.create_agent("Bea", model=MODEL, blocks={"notes": "The mill is old."}, tools=[])
            for fact in FACTS:
                await agent.archive(fact)
            transport = httpx.ASGITransport(create_app(library, ServerConfig()))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8283") as client:

                async def send(*replies: ModelReply, to: str = agent.id) -> None:
                    model.replies = list(replies)
                    body = {"messages": [{"role": "user", "content": "How far is it to Ghent?"}]}
                    answer = await client.post(f"/v1/agents/{to}/messages", json=body)
                    answer.raise_for_status()

                inserts = [calls("memory_insert", label="notes", new_string=fact) for fact in FACTS[:2]]
                searches = [calls("archival_memory_search", query=query) for query in QUERIES]
                return [
                    await _message(tracer, model, partial(send, to=plain.id)),
                    await _call(tracer, model, send, *inserts),
                    await _call(tracer, model, send, *searches),
                ]


async def _message(tracer: Tracer, model: TracedModel, send: Callable[..., Awaitable[None]]) -> CallTrace:
    await send()
    found: list[CallTrace] = []
    model.on_request = lambda: found.append(tracer.stop())
    tracer.start("HTTP message until the model is called")
    await send()
    model.on_request = _nothing
    return found[0]


async def _call(
    tracer: Tracer, model: TracedModel, send: Callable[..., Awaitable[None]], *twice: ModelReply
) -> CallTrace:
    """From the end of the model's reply with the second of these calls until its next request."""
    first, second = twice
    name = next(part.name for part in first.parts if isinstance(part, ToolCall))
    await send(first)
    found: list[CallTrace] = []
    requests = 0

    def on_request() -> None:
        nonlocal requests
        requests += 1
        if requests == 2:
            found.append(tracer.stop())

    def on_reply() -> None:
        if requests == 1:
            tracer.start(f"{name} until the next request")

    model.on_request, model.on_reply = on_request, on_reply
    await send(second)
    model.on_request = model.on_reply = _nothing
    return found[0]


def main() -> None:
    """Print the counts."""
    with tempfile.TemporaryDirectory() as folder:
        traces = asyncio.run(trace_paths(Path(folder)))
    for trace in traces:
        print(trace)
        if "--list" in sys.argv:
            print("\n".join(f"    {line}" for line in trace.lines()))


if __name__ == "__main__":
    main()
