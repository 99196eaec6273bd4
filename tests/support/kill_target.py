"""A process to be killed: an agent server in miniature, told by JSON lines what to send, and telling what it promised.

`python -m tests.support.kill_target STORE EFFECTS` opens the store and says `{"ready": pid}`. Then each line of its
stdin is one order:

    {"agent": id, "conversation": id, "key": "k7", "text": "k7 append note+mark"}    send, the key being idempotent
    {"cancel": run_id, "agent": id}
    {"approve": call_id, "agent": id}                                 of the agent's first conversation
    {"reset": key, "agent": id}                                       of all its conversations

and its stdout tells `{"accepted": key, "run_id": ...}` once the message is durable, `{"ended": key, "stop_reason": ...,
"text": ...}` once its run is over, `{"refused": key, "error": code, "message": ..., "run_id": ...}` for one that is not
taken, `{"cancelled": run_id}`, `{"approved": call_id, "text": ...}` once the run that goes on is over, and `{"reset":
key, "conversations": ...}`, how many began anew. At the end of stdin it finishes what it has begun and closes the
store.

Its model has no will of its own: after the key, each word of a message is one answer, the names joined by `+` in it are
its calls (see `STEPS`), and then it says `done` and the key. So a message says beforehand what has to be found later.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure
from perdure.core.errors import PerdureError
from perdure.core.events import MessageAdded, RunEnded
from perdure.core.ids import ConversationId, RunId
from perdure.core.messages import ToolCall, ToolDecision
from perdure.core.models import ModelReply, ModelRequest
from perdure.library.agent import AsyncAgent
from perdure.testing.scripted_model import ScriptedModel, says
from perdure.toolbox.functions import tool

MODEL = "test/obedient"

STEPS: dict[str, tuple[str, dict[str, str]]] = {
    "append": ("core_memory_append", {"label": "human", "content": "KEY"}),
    "insert": ("memory_insert", {"label": "human", "new_string": "KEY"}),
    "share": ("core_memory_append", {"label": "shared", "content": "KEY"}),
    "archive": ("archival_memory_insert", {"content": "note of KEY"}),
    "note": ("note", {"key": "KEY"}),
    "mark": ("mark", {"key": "KEY"}),
    "slow": ("slow", {"key": "KEY"}),
    "guarded": ("guarded", {"key": "KEY"}),
}
"""Word of a message -> tool and arguments; `KEY` stands for the message's key."""

TOOLS = tuple(dict.fromkeys(name for name, _ in STEPS.values()))
"""The tools that an agent of this model needs."""

EFFECT_S = 0.002
"""How long a tool takes before and after its effect: long enough to be killed in."""

SLOW_S = 30.0


def answer(request: ModelRequest) -> ModelReply:
    """What the newest user message orders, given how far its run has come."""
    at = max(index for index, message in enumerate(request.messages) if message.role == "user")
    key, *steps = request.messages[at].text.split()
    taken = sum(message.role == "assistant" for message in request.messages[at:])
    if taken >= len(steps):
        return says(f"done {key}")
    calls = []
    for index, word in enumerate(steps[taken].split("+")):
        name, arguments = STEPS[word]
        values = {label: value.replace("KEY", key) for label, value in arguments.items()}
        calls.append(ToolCall(f"{key}-{taken}-{index}", name, json.dumps(values)))
    return ModelReply(parts=tuple(calls))


def obedient_model() -> ScriptedModel:
    return ScriptedModel(otherwise=answer)


def effect_tools(effects: Path) -> tuple[Callable[..., Any], ...]:
    """Tools whose effect outlives the process: each adds a line `tool key` to a file that is not the store's."""

    def leave(line: str) -> None:
        time.sleep(EFFECT_S)
        with effects.open("a") as file:
            file.write(line)
        time.sleep(EFFECT_S)

    @tool(parallel=True)
    def note(key: str) -> str:
        """Note a key; twice would be wrong."""
        leave(f"note {key}\n")
        return f"noted {key}"

    @tool(parallel=True, idempotent=True)
    def mark(key: str) -> str:
        """Mark a key; twice does no harm."""
        leave(f"mark {key}\n")
        return f"marked {key}"

    @tool
    def guarded(key: str) -> str:
        """Do what a person approved; twice would be wrong."""
        leave(f"guarded {key}\n")
        return f"guarded {key}"

    @tool
    async def slow(key: str) -> str:
        """Take half a minute."""
        await asyncio.sleep(SLOW_S)
        return f"slowly {key}"

    return note, mark, slow, guarded


async def _serve(store: str, effects: Path) -> None:
    if machine := os.environ.get("KILL_TARGET_MACHINE"):
        socket.gethostname = lambda: machine
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with await AsyncPerdure.open(store, models={MODEL: obedient_model()}, tools=effect_tools(effects)) as perdure:
        _tell(ready=os.getpid())
        async with asyncio.TaskGroup() as tasks:
            while line := await orders.readline():
                tasks.create_task(_obey(perdure, json.loads(line)))


async def _obey(perdure: AsyncPerdure, order: dict[str, Any]) -> None:
    agent = await perdure.agent(order["agent"])
    if "cancel" in order:
        await agent.cancel(RunId(order["cancel"]))
        _tell(cancelled=order["cancel"])
        return
    if "approve" in order:
        reply = await agent.answer([ToolDecision(order["approve"], True)])
        _tell(approved=order["approve"], text=reply.text if reply is not None else "")
        return
    if "reset" in order:
        _tell(reset=order["reset"], conversations=len(await agent.reset()))
        return
    key = order["key"]
    try:
        accepted = await agent.submit(
            order["text"],
            conversation=ConversationId(order["conversation"]) if "conversation" in order else None,
            idempotency_key=key,
            if_busy=order.get("if_busy", "wait"),
            background=order.get("background", False),
        )
    except PerdureError as error:
        _tell(refused=key, error=error.code, message=str(error), run_id=getattr(error, "run_id", None))
        return
    _tell(accepted=key, run_id=accepted.run.id)
    end, text = await _followed(agent, accepted.run.id)
    _tell(ended=key, stop_reason=end.stop_reason, text=text)


async def _followed(agent: AsyncAgent, run_id: RunId) -> tuple[RunEnded, str]:
    """The end of a run, and what the agent said last."""
    text = ""
    async for sent in agent.follow(run_id):
        match getattr(sent, "event", None):
            case MessageAdded(message=message) if message is not None and message.role == "assistant":
                text = message.text
            case RunEnded() as end:
                return end, text
    raise AssertionError(f"{run_id} was followed to no end")


def _tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], Path(sys.argv[2])))
