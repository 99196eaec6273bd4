"""The reply to a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.events import MemoryEdited, MessageAdded, RunEnded, StoredEvent
from perdure.core.ids import RunId
from perdure.core.messages import Message, Question, ToolCall
from perdure.core.runs import Failure, StopReason, Usage
from perdure.core.text.reprs import attributes, short_repr
from perdure.engine.log.run_log import open_calls_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTurn:
    """An answer of the model or a result of a tool, by its tokens.

    Args:
        token_ids: the numbers of the answer's tokens; None: the provider does not tell them.
        token_logprobs: (logarithm of its probability, number) of each token; None: one of both is not known.
        tool: the name of the tool; None: an answer of the model.
    """

    text: str
    token_ids: tuple[int, ...] | None = None
    token_logprobs: tuple[tuple[float, int], ...] | None = None
    tool: str | None = None

    @classmethod
    def of_answer(cls, text: str, response: Mapping[str, Any]) -> ReplyTurn:
        """The turn of an answer with this text, with the tokens that the provider's response tells of."""
        ids = tuple(response["token_ids"]) if "token_ids" in response else None
        entries = (response.get("logprobs") or {}).get("content") or ()
        if ids is None or len(entries) != len(ids):
            return cls(text=text, token_ids=ids)
        pairs = tuple((entry["logprob"], number) for entry, number in zip(entries, ids, strict=True))
        return cls(text=text, token_ids=ids, token_logprobs=pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The outcome of one run.

    `text` is what the agent said, its replies joined by line breaks; `messages` are all that the run added to the log,
    the caller's own included; `edits` the memory edits on the way; `questions` what the agent asks with `ask_user`:
    they stand in `text` too, and the next message answers them. `logprobs` and `turns` are there if the request asked
    for them and the provider has them: of the tokens of the last answer, in OpenAI's shape; of all answers and results.
    """

    __repr__ = short_repr("text", "run_id", "stop_reason", "messages", "edits", "pending", "failure")

    text: str
    run_id: RunId
    stop_reason: StopReason
    messages: tuple[Message, ...]
    edits: tuple[MemoryEdited, ...]
    usage: Usage
    step_count: int
    failure: Failure | None = None
    context_tokens: int | None = None

    questions: tuple[Question, ...] = ()
    logprobs: Mapping[str, Any] | None = None
    turns: tuple[ReplyTurn, ...] | None = None

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls at which the run stopped: for a person (`awaits` is "approval") or this program ("client")."""
        if self.stop_reason != "requires_approval":
            return ()
        return tuple(one.call for one in open_calls_in(self.messages) if one.waits)

    @classmethod
    def of(cls, events: list[StoredEvent]) -> Reply:
        """Build the reply from the events of a whole run, of which the last is its end."""
        end = events[-1].event
        assert isinstance(end, RunEnded)
        messages: list[Message] = []
        edits: list[MemoryEdited] = []
        for stored in events:
            event = stored.event
            if isinstance(event, MessageAdded):
                if event.message is not None:
                    messages.append(event.message)
            elif isinstance(event, MemoryEdited):
                edits.append(event)
        texts = [message.text for message in messages if message.role == "assistant" and message.text]
        return cls(
            text="\n".join(texts),
            messages=tuple(messages),
            edits=tuple(edits),
            **attributes(end, "run_id", "stop_reason", "usage", "step_count", "failure", "context_tokens"),
            questions=tuple(
                result.question for message in messages for result in message.results if result.question is not None
            ),
        )


def add_accepted(error: StoreError, run_id: RunId) -> StoreError:
    """A copy of an error whose text adds that the message is stored, as this run: it must not be sent again."""
    what, _, _ = str(error).partition(", then send again")  # good advice only for what was not written
    again = type(error).__new__(type(error))
    again.__dict__.update(error.__dict__)
    again.args = (
        f"the message is kept ({run_id}) and will be answered when the store can be written again: {what};"
        " don't send it again without its idempotency key",
    )
    return again
