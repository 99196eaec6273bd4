"""What confirms an entry that an agent writes: a successful tool result of its own, or a message of its user."""

from __future__ import annotations

from perdure.core.errors import NotFound, ToolError
from perdure.core.ids import MessageId, is_id
from perdure.core.messages import Message, ToolResult
from perdure.core.nodes import message_handle, parse_handle
from perdure.core.tools.engine_specs import REPEATING_TOOLS
from perdure.domain.conversations import handles
from perdure.domain.provenance.context import sources_of_messages
from perdure.domain.tools.calls import MemoryCall
from perdure.features.skills.values import Evidence
from perdure.storage.tx import Tx

LOOKED_AT = 200
"""Among so many messages of the conversation, the newest, is looked for what an agent names by a tool or as `user`."""


def find_evidence(tx: Tx, call: MemoryCall, text: str) -> tuple[Evidence | None, str]:
    """Return (what `text` names as evidence, ""), or (None, why that confirms nothing).

    Args:
        text: the name of a tool, `user`, or the id or handle of a message; or the id of a tool's call.
    """
    if call.person is not None:
        return Evidence(kind="person"), ""
    name = text.strip()
    if not name:
        return None, "there is no evidence"
    if is_id("message", name) or parse_handle(name) is not None:
        try:
            return judge(tx, _find_message(tx, call, name))
        except (NotFound, ToolError) as error:
            return None, str(error)
    doubts: list[str] = []
    rows = tx.messages.list(
        call.agent.id, conversation_seq=call.run.conversation_seq, limit=LOOKED_AT, newest_first=True
    )
    for message in rows:
        result = result_of(message)
        if name in (message.role if message.role == "user" else "", *((result.name, result.call_id) if result else ())):
            evidence, doubt = judge(tx, message)
            if evidence is not None:
                return evidence, ""
            doubts.append(doubt)
    return None, doubts[0] if doubts else f"{name!r:.80} names no message of this conversation"


def judge(tx: Tx, message: Message) -> tuple[Evidence | None, str]:
    """Return (what a message of the agent confirms, ""), or (None, why it confirms nothing)."""
    handle, result = message_handle(message.seq), result_of(message)
    if message.role == "user" and message.kind == "message":
        labels = {source.label for source in sources_of_messages(tx, [message])}
        if labels <= {"user"}:
            return Evidence(kind="user", message_id=message.id), ""
        return None, f"{handle} is not the user's own word: it brings {', '.join(sorted(labels - {'user'}))}"
    if result is None:
        return None, f"{handle} is neither a tool's result nor a message of the user"
    if result.status != "success" or result.refused:
        return None, f"{handle} is a result of {result.name} that failed"
    if result.name in REPEATING_TOOLS or result.question is not None:
        return None, f"{handle} is a result of {result.name}, which does and checks nothing outside of your memory"
    return Evidence(kind="tool", message_id=message.id), ""


def result_of(message: Message) -> ToolResult | None:
    """The tool's result that a message is; None: it is none."""
    return next((part for part in message.parts if isinstance(part, ToolResult)), None)


def _find_message(tx: Tx, call: MemoryCall, name: str) -> Message:
    """The message of the agent with this id or handle. Raises: NotFound, ToolError."""
    if not is_id("message", name):
        found = handles.resolve_handle(tx, call.run, name)
        if isinstance(found, Message):
            return found
        raise ToolError(f"{name!r:.80} is not one message")
    agent_id, seq = tx.messages.place(MessageId(name))
    if agent_id != call.agent.id:
        raise NotFound("message", name)
    return handles.find_message(tx, agent_id, seq)
