"""The world around the simulated processes: a model that follows a plan, tools with effects, and what they did."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.context.sections.assemble import digest_of
from perdure.core.messages import Message, Part, Text, ToolCall
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.ports import CallContext
from perdure.core.runs import Usage
from perdure.core.specs import Tool, ToolOutcome, ToolSpec

MODEL = "simulated/planned"

SUMMARY_USAGE = Usage(input_tokens=7, output_tokens=3)

PLAN_LETTERS = "mmmasnippbudcgGxk"
"""m a memory edit, a an archival insert, s a search, n a tool that must not run twice, i an idempotent one, p two
parallel calls, b bad arguments, u an unknown tool, d two calls with one id, c an edit and a foreign call in one
answer, g a call that needs approval, G two of those and a free one, x one that needs approval and one of the
client's, k new working notes."""

CLIENT_TOOL = {
    "name": "client",
    "description": "Ask the client.",
    "parameters": {"type": "object", "properties": {"token": {"type": "string"}}},
}
"""What clients of the simulation run themselves."""

_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"token": {"type": "string"}},
    "required": ["token"],
    "additionalProperties": False,
}


@dataclass
class World:
    """What survives every crash because it is outside: what tools did, and which requests models were sent."""

    effects: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(run id, call id) -> how often a tool that must not run twice ran for it."""
    guarded: Counter[str] = field(default_factory=Counter)
    """Token -> how often the guarded tool ran with it."""
    approved: set[str] = field(default_factory=set)
    """The tokens of guarded calls that somebody approved."""
    requests: set[str] = field(default_factory=set)
    """Digests of the canonical forms of all requests that a model saw."""


class PlannedModel:
    """`Model` that makes the calls named in the last user message, one answer a letter, then says `done KEY`.

    The message reads `KEY PLAN`; what was already done is seen from the request alone, so it does not matter which
    process asks. Summaries are made well, badly or not at all, as the request's digest has it;
    `during_summary` is what somebody else does then.
    """

    def __init__(
        self,
        world: World,
        fault: Callable[[str], Awaitable[None]],
        during_summary: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._world, self._fault, self._during_summary = world, fault, during_summary

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            await self._fault("model")
            if self._during_summary is not None:
                await self._during_summary()
            yield ModelReply(parts=self._summary(request), usage=SUMMARY_USAGE)
            return
        self._world.requests.add(digest_of(request))
        await self._fault("model")
        said = [index for index, message in enumerate(request.messages) if message.role == "user"]
        key, _, plan = request.messages[said[-1]].text.partition(" ")
        step = _step(key, request.messages[said[-1] :])
        usage = Usage(input_tokens=10, output_tokens=1)
        if step >= len(plan):
            for word in ("done ", key):
                yield ModelDelta("text", word)
                await self._fault("model")
            yield ModelReply(parts=(Text(f"done {key}"),), usage=usage)
            return
        parts = _calls(plan[step], f"{key}.{step}")
        for index, part in enumerate(parts):
            if isinstance(part, ToolCall):
                yield ModelDelta("tool_name", part.name, index, part.call_id)
        await self._fault("model")
        yield ModelReply(parts=parts, usage=usage)

    def _summary(self, request: ModelRequest) -> tuple[Part, ...]:
        source = request.messages[-1].text
        match int(digest_of(request), 16) % 4:
            case 0:
                return ()
            case 1:
                return (Text("I'm sorry, but I can't help with that."),)
            case 2:
                return (Text(source),)
            case _:
                keys = dict.fromkeys(re.findall(r"[a-z]\d+(?:\.\d+)?", source))
                return (Text(f"The user asked for {', '.join([*keys][:8])}; all of it was done."),)


def _step(key: str, messages: Sequence[Message]) -> int:
    """How many answers of the plan were given: the newest says its number, also when older ones have left the view."""
    for message in reversed(messages):
        for call in message.calls:
            if found := re.search(rf"{re.escape(key)}\.(\d+)", call.arguments):
                return int(found[1]) + 1
    return 0


def _calls(letter: str, token: str) -> tuple[Part, ...]:
    def call(name: str, number: int = 0, /, **arguments: Any) -> ToolCall:
        # Ids repeat from answer to answer, as some providers' do.
        return ToolCall(f"call_{number}", name, json.dumps(arguments))

    match letter:
        case "m":
            return (call("core_memory_append", label="notes", content=f"[{token}]"),)
        case "a":
            return (call("archival_memory_insert", content=f"archived {token}", tags=["t"]),)
        case "s":
            return (call("conversation_search", query=token),)
        case "n":
            return (call("charge", token=token),)
        case "i":
            return (call("fetch", token=token),)
        case "p":
            return (call("fetch", token=f"{token}a"), call("fetch", 1, token=f"{token}b"))
        case "b":
            return (ToolCall("call_0", "charge", f'{{"token": "{token}'),)
        case "u":
            return (call("no_such_tool", token=token),)
        case "d":
            return (call("charge", token=f"{token}a"), call("charge", token=f"{token}b"))
        case "g":
            return (call("guarded", token=token),)
        case "G":
            return (
                call("guarded", token=f"{token}a"),
                call("fetch", 1, token=token),
                call("guarded", 2, token=f"{token}b"),
            )
        case "k":
            return (call("update_working_checkpoint", key_info=f"[{token}]"),)
        case "x":
            return (call("client", token=f"{token}a"), call("guarded", 1, token=f"{token}b"))
        case _:
            return (call("core_memory_append", label="notes", content=f"[{token}]"), call("charge", 1, token=token))


class WorldTools:
    """`Toolbox` of three foreign tools: `charge` must not run twice, `fetch` may, and runs in parallel; `guarded` must
    not run twice either, and a person has to approve it."""

    def __init__(
        self,
        world: World,
        fault: Callable[[str], Awaitable[None]],
        rng: random.Random,
        defect: Callable[[], None] = lambda: None,
        begins: Callable[[CallContext], None] = lambda context: None,
    ) -> None:
        self._world, self._fault, self._rng, self._defect, self._begins = world, fault, rng, defect, begins

    def specs(self) -> Sequence[ToolSpec]:
        return (
            ToolSpec(name="charge", description="Charge once.", parameters=_PARAMETERS),
            ToolSpec(name="guarded", description="Act.", parameters=_PARAMETERS, requires_approval=True),
            ToolSpec(name="fetch", description="Fetch.", parameters=_PARAMETERS, idempotent=True, parallel=True),
        )

    def missing(self, tool: Tool) -> str | None:
        self._defect()
        return None if tool.spec.name in ("charge", "fetch", "guarded") else f"there is no {tool.spec.name!r} here"

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        name = tool.spec.name
        self._begins(context)
        await self._fault("tool")
        if name == "guarded":
            self._world.guarded[str(arguments["token"])] += 1
        if name in ("charge", "guarded"):
            self._world.effects[context.run_id, context.call_id] += 1
        await asyncio.sleep(self._rng.choice((0.0, 0.01, 1.5)))
        await self._fault("tool")
        return ToolOutcome(text=f"{name} {arguments['token']}")
