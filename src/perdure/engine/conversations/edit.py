"""A message that a person changes afterwards: its row stays in the log, and everybody is shown the new text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from perdure.context.sections.stubs import row_tokens
from perdure.core.blocks import Author
from perdure.core.errors import ConversationBusy, EmptyMessage, InvalidInput, MessageTooLarge, NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId, MessageId
from perdure.core.loops import THINKING
from perdure.core.messages import Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, text_of
from perdure.core.nodes import SummaryNode
from perdure.core.runs import RunKey
from perdure.domain.texts import TEXTS_CHANGED
from perdure.engine.compaction.revise import find_note, revise_nodes
from perdure.engine.estimates import dropped_rows
from perdure.engine.ports import UnitInputs
from perdure.storage.tx import Tx

MESSAGE_EDITED: Point[[Tx, Message, datetime], None] = Point("message_edited")
"""A message says something else than it did. Its agent is locked."""

EditedPart = Literal["user", "system", "assistant", "reasoning", "tool"]
"""What of a message is changed: a user's or system message, the text or reasoning of an answer, a tool's result."""


@dataclass(frozen=True, slots=True)
class MessageEdit:
    """A change of a message.

    Args:
        part: what of the message is changed.
        parts: what takes its place: one text, for a user's and a system message texts and pictures.
        call_id: the call whose result is changed; None: the message has only one.
    """

    part: EditedPart
    parts: tuple[Text | Image, ...]
    call_id: str | None = None

    @property
    def text(self) -> str:
        """The new text."""
        return text_of(self.parts)


def edit_message(
    tx: Tx,
    agent_id: AgentId,
    message_id: MessageId,
    edit: MessageEdit,
    inputs: UnitInputs,
    *,
    limit_chars: int,
    author: Author,
) -> Message:
    """Change a message, and return it as it is shown from now on. Requests that were sent before stay as they were.
    Raises: NotFound: the agent has no such message; ConversationBusy: a run of its conversation has not ended;
    InvalidInput: the message has no such part, or is made by the engine; EmptyMessage, MessageTooLarge."""
    tx.agents.lock(agent_id)
    owner, seq = tx.messages.place(message_id)
    if owner != agent_id:
        raise NotFound("message", message_id)
    if seq < 0:
        raise InvalidInput(
            f"{message_id} is the system message of its conversation, which is compiled from the agent's `system` and"
            " its blocks: change those"
        )
    before = tx.messages.get(message_id)
    if (busy := tx.runs.find_active(agent_id, before.conversation_seq)) is not None:
        raise ConversationBusy(busy.id)
    if edit.part != "tool" and not edit.text.strip():
        raise EmptyMessage
    if len(edit.text) > limit_chars:
        raise MessageTooLarge(size=len(edit.text), limit=limit_chars)
    after = revise_message(tx, before, edited_parts(before, edit), inputs, author=author)
    if edit.part != "reasoning":
        TEXTS_CHANGED(tx, [message_id], inputs.now)
        for node in revise_nodes(tx, [before], inputs):
            renew_note(tx, node, inputs, author=author)
        MESSAGE_EDITED(tx, before, inputs.now)
    return after


def revise_message(
    tx: Tx, before: Message, parts: Sequence[Part], inputs: UnitInputs, *, author: Author, name: str | None = None
) -> Message:
    """Show a message with other parts and another speaker's name, and return it; previews of its run are removed."""
    tx.messages.revise(before.id, parts, author=author, at=inputs.now, name=name)
    if before.run_seq is not None:  # they hold the old text in pieces
        tx.events.trim_deltas(RunKey(before.agent_id, before.run_seq), keep=0, since=inputs.now)
    after = tx.messages.get(before.id)
    recount_view(tx, before, after, inputs)
    return after


def renew_note(tx: Tx, before: SummaryNode, inputs: UnitInputs, *, author: Author) -> None:
    """Show a node's new text also in the message that tells of it. `before`: the node as it was."""
    if (found := find_note(tx, before, reset=False)) is not None:
        row, note = found
        (now,) = tx.nodes.list_by_seqs(before.agent_id, before.conversation_seq, [before.seq])
        text = note.text.replace(before.text, now.text) if before.text in note.text else now.text
        tx.messages.revise(row.id, [replace(note, text=text)], author=author, at=inputs.now)


def edited_parts(message: Message, edit: MessageEdit) -> Sequence[Part]:
    """Return the parts of a message with the change. Raises: InvalidInput: it has no such part."""
    role = "assistant" if edit.part == "reasoning" else edit.part
    parts: Sequence[Part] | None = None
    if message.kind == "message" and message.role == role:
        match edit.part:
            case "assistant":
                spoken = [call for call in message.calls if call.speech]
                parts = _with_words(message, Text(edit.text), spoken, "message")
            case "reasoning":
                thoughtful = [call for call in message.calls if call.thoughts]
                parts = _with_words(message, Reasoning(edit.text), thoughtful, THINKING)
            case "tool":
                parts = _with_result(message, edit)
            case "user" | "system":
                parts = edit.parts
    if parts is None:
        what = {"assistant": "text of an agent", "reasoning": "reasoning", "tool": "tool result to change"}
        raise InvalidInput(f"{message.id} has no {what.get(edit.part, f'text of the role {edit.part!r}')}")
    return parts


def _with_words(
    message: Message, words: Text | Reasoning, calls: Sequence[ToolCall], argument: str
) -> Sequence[Part] | None:
    """Return a message's parts with new words: they replace all parts of their type, else the `argument` of the only
    one of `calls`. None: the message has neither. A provider's signature of the old words is removed."""
    places = [place for place, part in enumerate(message.parts) if isinstance(part, type(words))]
    if not places:
        return _with_argument(message, calls[0], argument, words.text) if len(calls) == 1 else None
    kept = [(place, part) for place, part in enumerate(message.parts) if place not in places[1:]]
    return [words if place == places[0] else part for place, part in kept]


def _with_result(message: Message, edit: MessageEdit) -> Sequence[Part] | None:
    """Return the parts with another text of one result; its status and what it printed stay."""
    results = [result for result in message.results if edit.call_id in (None, result.call_id)]
    if len(results) != 1:
        return None
    return [
        replace(part, text=edit.text, shown_text=None, whole_tokens=None)
        if isinstance(part, ToolResult) and part == results[0]
        else part
        for part in message.parts
    ]


def _with_argument(message: Message, call: ToolCall, name: str, text: str) -> Sequence[Part]:
    """Return the parts with this text as an argument of a call that has such an argument."""
    arguments = json.loads(call.arguments) | {name: text}
    changed = replace(call, arguments=json.dumps(arguments, ensure_ascii=False))
    return [changed if part is call else part for part in message.parts]


def recount_view(tx: Tx, before: Message, after: Message, inputs: UnitInputs) -> None:
    """Store the new estimate of the rows in view, if a changed message is one of them: what was measured with its old
    text says nothing about the new one. `before`, `after`: the message before and after the change."""
    conversation = tx.conversations.get_by_seq(before.agent_id, before.conversation_seq)
    prefix_tokens, is_in_view = 0, before.seq >= conversation.first_seq
    if conversation.prefix_seq is not None:
        prefix = tx.prefixes.get(conversation.agent_id, conversation.prefix_seq)
        prefix_tokens = prefix.tokens
        is_in_view = before.seq >= prefix.from_message_seq or before.seq in prefix.pinned
    if not is_in_view:
        return
    stubs, counter = conversation.stubs, inputs.counter
    old, new = row_tokens(before, stubs, counter), row_tokens(after, stubs, counter)
    estimated = prefix_tokens + conversation.view_tokens
    tx.conversations.put_view(
        conversation.agent_id,
        conversation.seq,
        view_tokens=conversation.view_tokens - old + new,
        stubs=stubs,
        overcount=dropped_rows(conversation.overcount, [before], stubs, counter, estimated=estimated),
    )
