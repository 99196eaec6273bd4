"""What a program does with each thing that an agent says or does, and what calls it."""

from __future__ import annotations

import inspect
from typing import Any

from perdure.core.events import Delta, MessageAdded, RunEnded, StoredEvent
from perdure.core.messages import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.tools.answers import PendingCall


class AgentInterface:
    """Shows what an agent does: override the methods you need; others do nothing. A method may be a coroutine.

    The names are those of MemGPT's interface. Each `message` is the stored one, with its id, time and step.
    """

    def user_message(self, text: str, message: Message) -> Any:
        """Show what a user said."""

    def internal_monologue(self, text: str, message: Message) -> Any:
        """Show what the agent thought."""

    def assistant_message(self, text: str, message: Message) -> Any:
        """Show what the agent said to the user."""

    def tool_call(self, call: ToolCall, message: Message) -> Any:
        """Show that the agent calls a tool."""

    def tool_result(self, result: ToolResult, message: Message) -> Any:
        """Show what a tool returned; by default as `function_message`."""
        return self.function_message(result.text, message)

    def function_message(self, text: str, message: Message) -> Any:
        """Show what a tool returned: MemGPT's name for it."""

    def delta(self, piece: Delta) -> Any:
        """Show a piece of an answer that is still being made; the whole follows as a message."""

    def approval(self, call: PendingCall) -> Any:
        """Return whether a call may run that waits for a person; None: not decided here, so that it goes on waiting."""
        return None

    def run_ended(self, end: RunEnded) -> Any:
        """Show that the answer ended, and why. If `approval` decided calls, another answer follows."""

    def close(self) -> Any:
        """Learn that nothing follows."""


class InterfaceFeed:
    """Calls an interface for each event of a run, in order."""

    def __init__(self, interface: AgentInterface) -> None:
        self._interface = interface
        self._spoken: set[str] = set()
        """The calls that were shown as words to the user: their results are not shown."""

    async def show(self, sent: StoredEvent | Delta) -> None:
        """Show an event, if it is one that interfaces see."""
        match sent if isinstance(sent, Delta) else sent.event:
            case Delta() as piece:
                await finish(self._interface.delta(piece))
            case MessageAdded(message=Message(kind="message") as message):
                await self._show_message(message)
            case RunEnded() as end:
                await finish(self._interface.run_ended(end))
            case _:
                pass

    async def _show_message(self, message: Message) -> None:
        interface, calls = self._interface, [part for part in message.parts if isinstance(part, ToolCall)]
        speaks = any(call.speech for call in calls)
        for part in message.parts:
            match part:
                case Text(text=text) if message.role == "user":
                    await finish(interface.user_message(text, message))
                case Text(text=text) if message.role == "assistant" and text.strip():
                    # An agent that speaks by `send_message` thinks in its text.
                    say = interface.internal_monologue if speaks else interface.assistant_message
                    await finish(say(text, message))
                case Reasoning(text=text) if text.strip():
                    await finish(interface.internal_monologue(text, message))
                case ToolCall():
                    await self._show_call(part, message)
                case ToolResult(call_id=call_id) if call_id not in self._spoken:
                    await finish(interface.tool_result(part, message))
                case _:
                    pass

    async def _show_call(self, call: ToolCall, message: Message) -> None:
        if call.thoughts:
            await finish(self._interface.internal_monologue(call.thoughts, message))
        if call.speech:
            self._spoken.add(call.call_id)
            await finish(self._interface.assistant_message(call.speech, message))
        else:
            await finish(self._interface.tool_call(call, message))


async def finish(value: Any) -> Any:
    """Return what a method of an interface returned, after waiting for it if it is a coroutine."""
    return await value if inspect.isawaitable(value) else value
