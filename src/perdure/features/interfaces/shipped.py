"""Interfaces for a terminal, for callbacks, and for a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any, TextIO

from perdure.cli.views.view import visible
from perdure.core.events import Delta, RunEnded
from perdure.core.messages import Message, ToolCall, ToolResult
from perdure.core.runs import FAILED_REASONS
from perdure.core.tools.answers import PendingCall
from perdure.features.interfaces.interface import AgentInterface

SHOWN_CHARS = 500
"""How much of a thought, of a tool's arguments and result a terminal shows as a detail."""


class TerminalInterface(AgentInterface):
    """Prints the agent's words, with `details` also thoughts, calls and results; asks about calls in a terminal."""

    def __init__(self, *, out: TextIO | None = None, details: bool = False) -> None:
        self._out, self._details = out or sys.stdout, details

    def internal_monologue(self, text: str, message: Message) -> None:
        self._detail("thinks", text)

    def assistant_message(self, text: str, message: Message) -> None:
        print(visible(text), file=self._out, flush=True)

    def tool_call(self, call: ToolCall, message: Message) -> None:
        self._detail("calls", f"{call.name} {call.own_arguments}")

    def tool_result(self, result: ToolResult, message: Message) -> None:
        self._detail("result", result.text)

    async def approval(self, call: PendingCall) -> bool | None:
        if not sys.stdin.isatty():
            return None
        shown = visible(f"{call.name} {call.call.own_arguments}")  # whole: nobody allows what they can't read
        try:
            answer = await asyncio.to_thread(input, f"May it call {shown}? [y/N] ")
        except EOFError:  # Ctrl-D: they decide later
            return None
        return answer.strip().lower() in ("y", "yes")

    def run_ended(self, end: RunEnded) -> None:
        """Print why the answer failed, if it did."""
        if end.stop_reason in FAILED_REASONS:
            text = end.failure.message if end.failure else end.stop_reason
            print(f"The run failed: {visible(text)}", file=self._out, flush=True)

    def _detail(self, what: str, text: str) -> None:
        if self._details:
            print(f"({what}: {visible(text[:SHOWN_CHARS])})", file=self._out, flush=True)


class CallbackInterface(AgentInterface):
    """Calls your functions, by the names of the methods: `CallbackInterface(assistant_message=show)`.

    A function gets what the method gets, and may be a coroutine function. Raises: TypeError: there is no such method.
    """

    def __init__(self, **callbacks: Callable[..., Any]) -> None:
        for name, callback in callbacks.items():
            if name.startswith("_") or not hasattr(AgentInterface, name):
                names = ", ".join(var for var in vars(AgentInterface) if not var.startswith("_"))
                raise TypeError(f"an interface has no method {name!r:.80}: there are {names}")
            setattr(self, name, callback)


class SSEInterface(AgentInterface):
    """Makes server-sent events: `chunks` yields them until the answer ends, for a response that your program streams.

    Each has the name of a method as its event, and a JSON object as its data. A call that waits for a person ends the
    stream too; `agent.approve` goes on.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the events as bytes."""
        while (chunk := await self._queue.get()) is not None:
            yield chunk

    def internal_monologue(self, text: str, message: Message) -> None:
        self._send("internal_monologue", id=message.id, text=text)

    def assistant_message(self, text: str, message: Message) -> None:
        self._send("assistant_message", id=message.id, text=text)

    def tool_call(self, call: ToolCall, message: Message) -> None:
        self._send("tool_call", id=message.id, call_id=call.call_id, name=call.name, arguments=call.own_arguments)

    def tool_result(self, result: ToolResult, message: Message) -> None:
        self._send("tool_result", id=message.id, call_id=result.call_id, status=result.status, text=result.text)

    def delta(self, piece: Delta) -> None:
        if piece.kind in ("text", "reasoning"):
            self._send("delta", id=piece.message_id, kind=piece.kind, text=piece.text)

    def approval(self, call: PendingCall) -> None:
        self._send("approval", id=call.message_id, call_id=call.call_id, name=call.name, arguments=call.arguments)

    def run_ended(self, end: RunEnded) -> None:
        failure = asdict(end.failure) if end.failure else None
        self._send("run_ended", run_id=end.run_id, stop_reason=end.stop_reason, failure=failure)

    def close(self) -> None:
        self._queue.put_nowait(None)

    def _send(self, event: str, **fields: Any) -> None:
        data = json.dumps(fields, ensure_ascii=False)
        self._queue.put_nowait(f"event: {event}\ndata: {data}\n\n".encode("utf-8", "replace"))
