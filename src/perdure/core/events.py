"""The events of a run.

Each kind is a dataclass with a literal `type`; together they are a closed union. An event is stored in the transaction
of its fact and published afterwards; `StoredEvent.seq` counts from 1 within its run, without gaps. Deltas are previews
of a message that is not stored yet: only background runs store them (as `DeltaStreamed`). `StepAbandoned` follows when
a crash made the deltas of a step void.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, get_args

from perdure.core.hooks import HookPoint
from perdure.core.ids import AgentId, BlockId, MessageId, RunId, StepId
from perdure.core.messages import Message, Waits
from perdure.core.nodes import MadeBy, SummaryMethod
from perdure.core.runs import Failure, StopReason, Usage, usage_to_dict
from perdure.core.text.json_strings import compact_json


@dataclass(frozen=True, slots=True)
class RunQueued:
    """The run waits for another run of its conversation."""

    run_id: RunId
    type: Literal["run.queued"] = "run.queued"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A process took the run; `lease_number` above 1 means it was taken over from one that died."""

    run_id: RunId
    lease_number: int
    type: Literal["run.started"] = "run.started"


@dataclass(frozen=True, slots=True)
class RunCancelRequested:
    """A caller asked for the end of the run."""

    run_id: RunId
    type: Literal["run.cancel_requested"] = "run.cancel_requested"


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """The agent follows the default model, and that is another one since its last run."""

    old: str
    new: str
    type: Literal["model.changed"] = "model.changed"


@dataclass(frozen=True, slots=True)
class StepStarted:
    """The model is about to be called."""

    step_id: StepId
    index: int
    type: Literal["step.started"] = "step.started"


@dataclass(frozen=True, slots=True)
class StepAbandoned:
    """The process died while the model answered: the previews of this step are void, and the model is called again."""

    step_id: StepId
    type: Literal["step.abandoned"] = "step.abandoned"


@dataclass(frozen=True, slots=True)
class PrefixRewritten:
    """The next requests begin with a new prefix."""

    prefix_seq: int
    reason: str
    type: Literal["prefix.rewritten"] = "prefix.rewritten"


RoomKind = Literal["evict", "merge", "stub", "swap", "engine"]
"""How a view becomes smaller."""


@dataclass(frozen=True, slots=True)
class ViewFull:
    """The next request would take `tokens`, more than `budget_tokens`, so its view is compacted first.

    `by`: `evict` summarises older messages, `merge` merges summaries, `stub` cuts large texts. `swap`: the request
    fits, but costs less with prepared summaries; `engine`: it fits, and the context engine wants it smaller.
    """

    tokens: int
    budget_tokens: int
    by: RoomKind
    type: Literal["view.full"] = "view.full"


@dataclass(frozen=True, slots=True)
class ViewCompacted:
    """A summary node replaced messages in the view, or (`merged`) one node replaced several; nothing was deleted.

    Args:
        tokens_before, tokens_after: the upper estimate of the messages and of the node.
        rejected: why an answer of the model was not used; None: its first was, or there is no language model.
        method: how the summary came about.
    """

    node_seq: int
    from_message_seq: int
    upto_message_seq: int
    merged: bool
    made_by: MadeBy
    tokens_before: int
    tokens_after: int
    rejected: str | None = None
    method: SummaryMethod = "normal"
    type: Literal["view.compacted"] = "view.compacted"


@dataclass(frozen=True, slots=True)
class RowsCut:
    """These rows are shown in part from now on: row number -> characters."""

    stubs: Mapping[int, int]
    type: Literal["rows.cut"] = "rows.cut"


@dataclass(frozen=True, slots=True)
class MemoryRecalled:
    """Recalled memory was appended to the run's requests, or `problem` says why not.

    Args:
        tokens: how many the appended text takes.
        sources: in the order of the text, each with `kind` (fact, passage, turn), `id`, `score` from 0 to 1, and a
            readable `name`.
        problem: why the recall did not run, or not in time; then there is no source.
    """

    tokens: int
    sources: tuple[Mapping[str, Any], ...]
    problem: str | None = None
    type: Literal["memory.recalled"] = "memory.recalled"


@dataclass(frozen=True, slots=True)
class HookAnswered:
    """A hook blocked something, added a context to the next request, or failed; `text` says why, or what."""

    point: HookPoint
    hook: str
    outcome: Literal["blocked", "context", "failed"]
    text: str
    type: Literal["hook.answered"] = "hook.answered"


@dataclass(frozen=True, slots=True)
class EngineQuarantined:
    """The agent's context engine failed, and `takes_over` plans for the rest of the run."""

    engine: str
    reason: str
    takes_over: str
    type: Literal["engine.quarantined"] = "engine.quarantined"


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message is in the log. The stored event has its number; a reader gets the message itself."""

    message_seq: int
    message: Message | None = None
    type: Literal["message.added"] = "message.added"


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A foreign tool is about to be run."""

    call_id: str
    name: str
    type: Literal["tool.started"] = "tool.started"


@dataclass(frozen=True, slots=True)
class MemoryEdited:
    """A block changed during the run; `diff` is unified, without file headers."""

    block_id: BlockId
    label: str
    version: int
    diff: str
    type: Literal["memory.edited"] = "memory.edited"


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event of a run.

    A run that stopped at pending calls may be cancelled later: then the results of these calls follow, and a second
    end, which counts.

    Args:
        context_tokens: of the newest request and its answer; None: there was no answer, or an older version wrote this.
    """

    run_id: RunId
    stop_reason: StopReason
    usage: Usage
    step_count: int
    failure: Failure | None = None
    context_tokens: int | None = None
    type: Literal["run.ended"] = "run.ended"


DeltaKind = Literal["text", "reasoning", "tool_name", "tool_arguments", "progress"]


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer as it streams. `index` numbers the calls of one answer, from 0; 0 for other kinds.

    Deltas of a tool's name also say what is known before the call is complete: what it will wait for (`awaits`), which
    of its arguments are the loop's (`loop_arguments`), and that it can't be run (`refused`). The text of `progress`
    says what a slow model does before the first piece; it is never stored.
    """

    step_id: StepId
    message_id: MessageId
    kind: DeltaKind
    text: str
    index: int = 0
    call_id: str | None = None
    awaits: Waits | None = None
    loop_arguments: Sequence[str] = ()
    refused: bool = False
    type: Literal["delta"] = "delta"


@dataclass(frozen=True, slots=True)
class DeltaStreamed:
    """A stored preview of a background run: several deltas of one kind, joined."""

    delta: Delta
    type: Literal["delta.streamed"] = "delta.streamed"


Event = (
    RunQueued
    | RunStarted
    | RunCancelRequested
    | ModelChanged
    | StepStarted
    | StepAbandoned
    | PrefixRewritten
    | RowsCut
    | ViewCompacted
    | ViewFull
    | MessageAdded
    | ToolStarted
    | MemoryEdited
    | MemoryRecalled
    | HookAnswered
    | EngineQuarantined
    | RunEnded
    | DeltaStreamed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event with its place: `seq` counts from 1 within the run."""

    agent_id: AgentId
    run_seq: int
    seq: int
    event: Event
    created_at: datetime


_EVENT_TYPES: dict[str, type[Event]] = {event.__dataclass_fields__["type"].default: event for event in get_args(Event)}


def events_to_text(events: Sequence[Event]) -> tuple[str, str]:
    """Return (kinds separated by commas, fields as JSON) of events that are stored together, for `events_from_text`.

    The fields of one event are an object, those of several a list. A message is written as its number.
    """
    shapes = [_event_shape(event) for event in events]
    return ",".join([event.type for event in events]), compact_json(shapes if len(shapes) > 1 else shapes[0])


def events_from_text(kinds: str, text: str) -> list[Event]:
    """Parse the texts of `events_to_text`, in order. Raises: ValueError: for an unknown kind."""
    shapes = json.loads(text) if "," in kinds else [json.loads(text)]
    return [_event_of(kind, shape) for kind, shape in zip(kinds.split(","), shapes, strict=True)]


def _event_shape(event: Event | Delta | Failure) -> dict[str, Any]:
    """Return the event's fields without `type`, as JSON holds them."""
    shape = {name: getattr(event, name) for name in event.__slots__ if name != "type"}
    match event:
        case MessageAdded():
            del shape["message"]
        case RunEnded(failure=failure):
            shape |= {"usage": usage_to_dict(event.usage)}
            if failure is None:
                del shape["failure"]
            else:
                shape["failure"] = _event_shape(failure)
        case DeltaStreamed(delta=delta):
            shape["delta"] = _event_shape(delta)
        case _:
            pass
    return shape


def _event_of(kind: str, shape: dict[str, Any]) -> Event:
    """Return the event of the type `kind` with the fields in `shape`, which JSON held. Raises: ValueError."""
    match kind:
        case "rows.cut":
            shape["stubs"] = {int(seq): chars for seq, chars in shape["stubs"].items()}
        case "memory.recalled":
            shape["sources"] = tuple(shape["sources"])
        case "delta.streamed":
            delta = Delta(**shape["delta"])
            shape["delta"] = replace(delta, loop_arguments=tuple(delta.loop_arguments))
        case "run.ended":
            shape["usage"] = Usage(**shape["usage"])
            if failure := shape.get("failure"):
                shape["failure"] = Failure(**failure)
        case _ if kind not in _EVENT_TYPES:
            raise ValueError(f"unknown event {kind!r}")
    return _EVENT_TYPES[kind](**shape)
