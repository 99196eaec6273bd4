"""Groups of agents on the wire: bodies of requests, shapes of groups, and what a group says: whole replies, the chunks
of streams, and transcripts. Each message names its speaker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from perdure.core.errors import InvalidInput
from perdure.core.ids import RunId
from perdure.core.messages import Message
from perdure.core.ports import Embedder
from perdure.core.runs import Failure, StopReason
from perdure.engine.records.run_request import NewMessage
from perdure.features.groups import values as core
from perdure.features.groups.companion_service import CompanionInfo, PassEdit, PassInfo
from perdure.features.groups.replies import GroupReply, SpeakerReply
from perdure.features.groups.service import entry_id, is_deleted
from perdure.features.groups.units import PARTICIPANTS_MAX, GroupChanges, NewGroup
from perdure.library.agents.agents import CompanionKind, FullAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.base import WireRequest, nulls
from perdure.server.wire.chunks import Chunk, ChunkMaker, Chunks, StreamMode
from perdure.server.wire.errors import NotSupported
from perdure.server.wire.fields import AgentIdIn, BlockIdIn, Items, keywords
from perdure.server.wire.input import SendRequest
from perdure.server.wire.messages import FIRST_FIELDS, Display, content_shape, otid, second, wire_messages
from perdure.server.wire.runs import RequestUsage, reply_messages, stop_reason
from perdure.server.wire.shapes import WireShape, computed

WireGroupKind = core.GroupKind | Literal["swarm"]
"""The kinds that clients know. No group is a `swarm`."""

ONE_AGENT_OPTIONS = frozenset(
    {"client_tools", "client_skills", "override_model", "override_system", "return_logprobs"}
) | {*("max_tokens", "max_cost_usd")}
"""Fields of a request that a group does not take."""

_RENAMED = {"sleeptime_agent_frequency": "frequency"}
"""Field of the wire -> field of a group, where they differ."""


class ManagerConfigIn(WireRequest):
    """How the agents of a group take turns; a field that the kind lacks is refused. Letta has no limits of tokens."""

    manager_type: WireGroupKind | None = None
    manager_agent_id: AgentIdIn | None = None
    termination_token: str | None = None
    max_turns: Annotated[int, keywords(minimum=1)] | None = None
    sleeptime_agent_frequency: int | None = None
    max_message_buffer_length: int | None = None
    min_message_buffer_length: int | None = None
    max_tokens: Annotated[int, keywords(minimum=1)] | None = None
    max_cost_usd: float | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The fields that the body has, under the names of a group's; null is None."""
        names = self.model_fields_set - {"manager_type"}
        return {_RENAMED.get(name, name): getattr(self, name) for name in names}


class GroupChangesIn(WireRequest):
    """Changes of a group. A field that is missing or null stays; the lists are whole new ones."""

    agent_ids: Annotated[Items[AgentIdIn], keywords(minItems=1, maxItems=PARTICIPANTS_MAX)] | None = None
    description: str | None = None
    manager_config: ManagerConfigIn | None = None
    project_id: str | None = None
    shared_block_ids: Items[BlockIdIn] | None = None
    hidden: bool | None = None

    @property
    def changes(self) -> GroupChanges:
        """The new values, as the library takes them. A null of `manager_config` removes a limit."""
        values = self.non_null("agent_ids", "description", "project_id", "shared_block_ids", "hidden")
        return cast(GroupChanges, values | (self.manager_config.values if self.manager_config else {}))

    def check_kind(self, group: core.Group) -> None:
        """Check that the rule stays the one that the group has. Raises: InvalidInput."""
        kind = self.manager_config and self.manager_config.manager_type
        if kind is not None and kind != group.kind:
            raise InvalidInput(
                f"manager_config.manager_type is {kind!r}: {group.id} is a {group.kind} group and stays one. Create"
                " another group"
            )


class GroupIn(GroupChangesIn):
    """A group as a whole; without a `manager_config` its agents speak in turn."""

    agent_ids: Annotated[Items[AgentIdIn], keywords(minItems=1, maxItems=PARTICIPANTS_MAX)]
    description: str
    manager_config: ManagerConfigIn = ManagerConfigIn()

    @property
    def new_group(self) -> NewGroup:
        """The group to create. Raises: NotSupported."""
        kind = self.manager_config.manager_type or "round_robin"
        if kind == "swarm":
            raise NotSupported("manager_config.manager_type: there are no swarm groups; a dynamic one comes nearest")
        return {"kind": kind, **self.changes}


class Group(
    WireShape,
    of=core.Group,
    fields="id manager_type agent_ids description project_id shared_block_ids manager_agent_id termination_token"
    " max_turns sleeptime_agent_frequency turns_counter last_processed_message_id max_message_buffer_length"
    " min_message_buffer_length hidden",
    manager_type="kind",
    last_processed_message_id="last_message_id",
    unlisted=nulls("template_id", "base_template_id", "deployment_id"),
    optional="max_tokens max_cost_usd",
    **_RENAMED,
):
    """A group; limits of ours where they are set."""

    hidden: bool | None = computed(lambda group: group.hidden or None)
    max_tokens: int
    max_cost_usd: float


def group_messages(body: SendRequest) -> Sequence[NewMessage]:
    """The messages of a request to a group. Raises: InvalidInput: it answers calls; NotSupported: an option of runs."""
    if options := sorted(body.model_fields_set & ONE_AGENT_OPTIONS):
        raise NotSupported(f"{options[0]}: a group's agents have their own; send it to an agent, or leave it out")
    messages, answers = body.contents()
    if answers is not None:
        raise InvalidInput(
            "messages: a group takes no answers to calls. Send them to the agent that waits: POST"
            " /v1/agents/{agent_id}/messages"
        )
    return messages


STOP_REASONS: Mapping[core.GroupStopReason, StopReason] = {
    "end_turn": "end_turn",
    "termination_token": "end_turn",
    "max_turns": "max_steps",
    "max_tokens": "max_tokens_exceeded",
    "max_cost": "insufficient_credits",
    "max_depth": "max_steps",
    "no_speaker": "error",
    "requires_approval": "requires_approval",
    "cancelled": "cancelled",
    "error": "error",
}
"""Why a turn ended -> the word that clients know for it. `group_stop_reason` beside it is the exact one."""


def _stop_shape(turn: core.GroupTurn) -> dict[str, Any]:
    reason = turn.stop_reason or "error"
    return stop_reason(STOP_REASONS[reason]) | {"group_stop_reason": reason}


def _usage_shape(turn: core.GroupTurn, run_ids: list[RunId]) -> dict[str, Any]:
    """The usage of a turn, with the runs of its speakers."""
    return RequestUsage.make(turn.usage, step_count=turn.step_count, context_tokens=None, run_ids=run_ids)


def _as_said_by(speaker: core.Speaker, shape: dict[str, Any]) -> dict[str, Any]:
    """A message of a run on the wire, with its speaker's name and without its number in the run's own stream."""
    return shape | {"name": speaker.name, "sender_id": speaker.agent_id, "seq_id": None}


def group_response(reply: GroupReply, display: Display) -> dict[str, Any]:
    """The response to a message for a group, not streamed: the messages of all speakers in order, with the reason where
    one failed."""
    return {
        "messages": [shape for one in reply.replies for shape in _reply_shapes(one, display)],
        "stop_reason": _stop_shape(reply.turn),
        "usage": _usage_shape(reply.turn, [one.reply.run_id for one in reply.replies if one.reply]),
        "logprobs": None,
        "turns": None,
    }


def _reply_shapes(one: SpeakerReply, display: Display) -> list[dict[str, Any]]:
    """Return the wire messages of one agent's speech, and of why it failed."""
    said = [] if one.reply is None else reply_messages(one.reply.messages, display)
    shapes = [_as_said_by(one.speaker, shape) for shape in said]
    return shapes + (entry_shapes(one.failure, None, display) if one.failure is not None else [])


class GroupChunks(ChunkMaker[core.GroupEvent]):
    """The chunks of a stream of one turn: those of the speakers' runs, one after the other, and one end."""

    owner = "the group"

    def __init__(self, turn: core.GroupTurn, mode: StreamMode) -> None:
        self.name = f"turn {turn.seq} of {turn.group_id}"
        self._mode = mode
        self._speaker: core.Speaker | None = None
        self._chunks: Chunks | None = None
        self._run_ids: list[RunId] = []
        self._turn: core.GroupTurn | None = None

    def of(self, event: core.GroupEvent, *, now: datetime) -> Iterator[Chunk]:
        match event:
            case core.SpeakerStarted(speaker=speaker, run=run):
                self._speaker, self._chunks = speaker, Chunks(run, self._mode)
                self.run_id = run.id
                self._run_ids.append(run.id)
            case core.SpeakerEvent(speaker=speaker, event=inner) if self._chunks is not None:
                for chunk in self._chunks.of(inner, now=now):
                    yield (
                        chunk
                        if isinstance(chunk, Failure) or chunk["message_type"] == "ping"
                        else _as_said_by(speaker, chunk)
                    )
            case core.SpeakerFailed(entry=entry):
                yield from entry_shapes(entry, None, self._mode.display)
            case core.GroupTurnEnded(turn=turn):
                self._turn = turn

    def end(self) -> Iterator[Chunk]:
        if self._turn is None:
            return
        yield _stop_shape(self._turn)
        if self._turn.failure is not None and self._turn.stop_reason in core.GROUP_FAILED_REASONS:
            yield self._turn.failure
        else:
            yield _usage_shape(self._turn, self._run_ids)

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        yield stop_reason("error") | {"group_stop_reason": "error"}
        yield failure


def entry_shapes(entry: core.GroupMessage, message: Message | None, display: Display) -> list[dict[str, Any]]:
    """The wire messages of an entry of a transcript. Speeches are those of their agents; what the group itself says of
    one, such as why it failed, is a message of the system."""
    if message is not None:
        shapes = wire_messages(message, display)
        return [shape | {"name": entry.sender_name, "sender_id": entry.sender_id} for shape in shapes]
    is_user = entry.kind == "user"
    content = content_shape(entry.parts) if is_user else _notice(entry)
    shape = FIRST_FIELDS | {
        "id": entry_id(entry),
        "date": second(entry.created_at),
        "name": entry.sender_name or None,
        "message_type": "user_message" if is_user else "system_message",
        "otid": otid(entry_id(entry), 0),
        "sender_id": entry.sender_id,
        "run_id": entry.run_id,
        "content": content,
    }
    return [shape] if display.includes(shape["message_type"]) else []


def _notice(entry: core.GroupMessage) -> str:
    """Return what the transcript says about an agent that did not speak."""
    if is_deleted(entry, None):
        return f"{entry.sender_name} said something that was deleted."
    if entry.kind in ("silence", "choice"):
        return f"{entry.sender_name} says nothing."
    if entry.kind == "approval":
        return f"{entry.sender_name} waits for an approval of its tool call."
    return f"{entry.sender_name} failed: {entry.text}"


def agent_fields(state: FullAgent, window_tokens: int, embedder: Embedder | None) -> Mapping[str, Any]:
    """The fields of an agent's shape about the group that it manages."""
    group = state.of_features.get("group")
    if group is None:
        return {}
    fields = dict.fromkeys(("managed_group", "multi_agent_group"), Group.make(group))
    return fields | ({"enable_sleeptime": True} if group.kind in core.SLEEPTIME_KINDS else {})


async def import_group(
    library: AsyncPerdure, body: dict[str, Any], manager: dict[str, Any], is_companion: bool
) -> Callable[[], Awaitable[object]] | None:
    """Make a group of an agent file, or change the companion that its manager has; return what deletes the group."""
    if not is_companion:
        new = GroupIn.model_validate(body | {"manager_config": manager}).new_group
        return (await library.groups.add(new)).delete
    if manager_id := manager.pop("manager_agent_id", None):
        where = core.GroupFilter(kind=manager["manager_type"])
        for made in await library.groups.page_of_agent(manager_id, where, Page(limit=1, ascending=True)):
            changes = GroupChangesIn.model_validate({"manager_config": manager}).changes
            await library.groups.by_id(made.id).update(**changes)
    return None


class PassEditShape(WireShape, of=PassEdit, fields="block_id label version diff"):
    """A block as a pass left it, and the difference."""


class CompanionIn(WireRequest):
    """The companion that an agent is to have."""

    kind: CompanionKind = "sleeptime"


class CompanionShape(
    WireShape, of=CompanionInfo, fields="agent_id kind frequency turns", id="companion.id", name="companion.name"
):
    """The companion of an agent: it wakes after `frequency` turns, and there were `turns` since its last pass."""


class PassFailure(WireShape, of=Failure, fields="kind message"):
    """Why the run of a pass failed."""


class PassShape(
    WireShape,
    of=PassInfo,
    fields="agent_id companion_id number cause outcome reason last_message_id run_id steps created_at ended_at",
    tokens="usage.total_tokens",
):
    """A pass of a companion: why it began, how it ended, and what it changed. `outcome` is null while it goes on."""

    edits: list[PassEditShape]
    failure: PassFailure | None
