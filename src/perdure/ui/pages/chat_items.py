"""What the chat shows of messages, edits of memory, calls that wait, and runs that brought no whole answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.core.blocks import BlockVersion
from perdure.core.errors import InvalidInput
from perdure.core.ids import BlockId, RunId
from perdure.core.messages import (
    SEND_MESSAGE,
    TRY_AGAIN,
    Image,
    Message,
    Question,
    Reasoning,
    Text,
    ToolCall,
    ToolDecision,
    ToolResult,
)
from perdure.core.runs import Failure
from perdure.core.text.reprs import attributes
from perdure.core.tools.answers import PendingCall
from perdure.library.messages.retries import WaitingRun
from perdure.library.messages.transcripts import TranscriptEntry
from perdure.ui.render import Data


def message_items(message: Message, edits: Sequence[BlockVersion] = ()) -> Iterable[Data]:
    """What the chat shows of a message, part by part; of the engine's own messages only summaries and notes."""
    own = ("agent_id", "run_id", "step_id", "otid")
    common = attributes(message, *own, message_id="id", at="occurred_at")
    for place, part in enumerate(message.parts):
        item = {**common, "id": f"{message.id}-{place}"}
        match part:
            case _ if message.kind not in ("message", "approval"):
                yield {**item, "kind": "note", "name": message.kind, "text": message.text}
                return
            case Text(text=text) if message.role == "system" and message.name == TRY_AGAIN:
                yield {**item, "kind": "note", "name": "Another try", "text": text}
            case Text(text=text):
                yield {**item, "kind": message.role, "name": message.name, "text": text}
            case Image():
                address = f"/agents/{message.agent_id}/pictures/{message.id}/{place}"
                yield {**item, "kind": message.role, "name": message.name, "text": part.text, "picture": address}
            case Reasoning(text=text) if text:
                yield {**item, "kind": "reasoning", "text": text}
            case ToolCall():
                if part.thoughts:
                    yield {**item, "id": f"{item['id']}-thoughts", "kind": "reasoning", "text": part.thoughts}
                if part.speech:
                    yield {**item, "kind": "assistant", "name": None, "text": part.speech}
                else:
                    yield {**item, "kind": "call", "name": part.name, "text": part.own_arguments}
            case ToolResult() if part.name != SEND_MESSAGE or part.refused:  # else the message itself says it
                failed = part.status != "success"
                yield {**item, "kind": "result", "name": part.name, "text": part.text, "failed": failed}
            case ToolDecision():
                text = "Approved" if part.approve else "Denied"
                yield {**item, "kind": "note", "name": "approval", "text": f"{text}: {part.reason or part.call_id}"}
    for edit in edits:
        yield edit_item(edit.block_id, edit.version, edit.label, edit.diff)


def entry_items(entry: TranscriptEntry) -> Iterable[Data]:
    """What the chat shows of a message, its edits of memory, and the end of its run if the answer is broken."""
    yield from message_items(entry.message, entry.edits)
    run_id = entry.message.run_id
    if run_id is not None and (entry.failure is not None or entry.stopped):
        yield end_item(run_id, entry.failure)


def end_item(run_id: RunId, failure: Failure | None, *, is_last: bool = False) -> Data:
    """What the chat shows in the place of an answer that did not come, or not to its end; `failure`: None: it was
    stopped. `is_last`: nothing followed, so it can be tried again."""
    kind, text = ("stopped", "") if failure is None else ("failure", failure.message)
    return {"id": f"end-{run_id}", "kind": kind, "run_id": run_id, "text": text, "is_last": is_last}


def queued_items(waiting: WaitingRun) -> Iterable[Data]:
    """What the chat shows of messages that wait behind another run: their ids are those of the messages later."""
    for draft in waiting.drafts:
        if draft.kind == "message" and draft.role == "user":
            text = "\n\n".join(part.text for part in draft.parts if isinstance(part, Text))
            pictures = [place for place, part in enumerate(draft.parts) if isinstance(part, Image)]
            ids = {"id": f"{draft.id}-0", "message_id": draft.id, "run_id": waiting.run.id, "otid": draft.otid}
            yield {**ids, "text": text, "pictures": pictures}


def edit_item(block_id: BlockId, version: int, label: str, diff: str) -> Data:
    """What the chat shows of an edit of memory."""
    return {"id": f"edit-{block_id}-{version}", "kind": "edit", "name": label, "text": diff}


def open_questions(entries: Sequence[TranscriptEntry]) -> list[Question]:
    """What the agent asked with `ask_user` and nobody has answered yet. Its last message puts them as a text."""
    messages, found = [entry.message for entry in entries], list[Question]()
    if not messages or messages[-1].role != "assistant":
        return []
    for message in reversed(messages[:-1]):
        if message.role != "tool":
            break
        found = [*(result.question for result in message.results if result.question is not None), *found]
    return found


def answer_text(form: Mapping[str, str]) -> str:
    """The message that answers the questions of a form: `question-0` with `own-0`, else `option-0`, and so on. Raises:
    InvalidInput: none is answered."""
    asked = [name.removeprefix("question-") for name in form if name.startswith("question-")]
    answers = {number: form.get(f"own-{number}", "").strip() or form.get(f"option-{number}", "") for number in asked}
    texts = [
        answer if len(asked) == 1 else f"{form[f'question-{number}']}\n{answer}"
        for number, answer in answers.items()
        if answer
    ]
    if not texts:
        raise InvalidInput("no question is answered: choose an answer, or write one")
    return "\n\n".join(texts)


def pending_shape(call: PendingCall) -> Data:
    """A call that waits."""
    own = ("call_id", "agent_id", "conversation_id", "run_id", "awaits_client", "helper")
    return attributes(call, *own, why="reason", tool="name", arguments="call.own_arguments")
