"""Stores with a scripted model, as the tests of the library open them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure, ModelDelta, ModelReply, ModelRequest, Perdure
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says

MODEL = "test/scripted"

Tools = Sequence[Callable[..., Any]]


def open_sync(path: Path, *script: Any, tools: Tools = (), **settings: Any) -> Perdure:
    """A store whose agents answer by the script, line by line, and then `OK.`."""
    return Perdure(path, models={MODEL: ScriptedModel(*script)}, tools=tools, settings=_settings(settings))


async def open_async(
    path: Path, *script: Any, model: SlowSpeaker | ScriptedModel | None = None, tools: Tools = (), **settings: Any
) -> AsyncPerdure:
    """The same for coroutines; `model` in place of a script."""
    models = {MODEL: model or ScriptedModel(*script)}
    return await AsyncPerdure.open(path, models=models, tools=tools, settings=_settings(settings))


def _settings(changes: dict[str, Any]) -> Settings:
    return replace(Settings(), **{"model": MODEL, "embedding": "none", **changes})


class SlowSpeaker:
    """A model that says its words one by one, waiting before each but the first until `go` is set."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.go = asyncio.Event()
        self.speaking = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        for word in self.words:
            yield ModelDelta("text", word)
            self.speaking.set()
            await self.go.wait()
        yield says("".join(self.words))


class SlowCaller(SlowSpeaker):
    """As `SlowSpeaker`, but its words are a message that it sends by `send_message`, in a loop with heartbeats."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        yield ModelDelta("tool_name", "send_message", call_id="call_1")
        yield ModelDelta("tool_arguments", '{"thinking": "I greet.", "message": "')
        for word in self.words:
            yield ModelDelta("tool_arguments", word)
            self.speaking.set()
            await self.go.wait()
        yield calls("send_message", thinking="I greet.", message="".join(self.words), request_heartbeat=False)
