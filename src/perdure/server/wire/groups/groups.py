"""Groups of agents on the wire: bodies of requests, and the shapes of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from perdure.core.errors import InvalidInput
from perdure.core.groups.group import Group, GroupKind
from perdure.domain.groups.units import PARTICIPANTS_MAX, GroupChanges, NewGroup
from perdure.library.services.messages import NewMessage
from perdure.server.errors import NotSupported
from perdure.server.wire.base import WireRequest, fields, nulls
from perdure.server.wire.fields import AgentIdIn, BlockIdIn, Items, keywords
from perdure.server.wire.input import SendRequest

WireGroupKind = GroupKind | Literal["swarm"]
"""The kinds that clients know. No group is a `swarm`."""

ONE_AGENT_OPTIONS = frozenset(
    {"client_tools", "client_skills", "override_model", "override_system", "return_logprobs"}
) | {
    *("max_tokens", "max_cost_usd"),
}
"""Fields of a request that a group does not take."""

_RENAMED = {"sleeptime_agent_frequency": "frequency"}
"""Field of the wire -> field of a group, where they differ."""


class ManagerConfigIn(WireRequest):
    """By which rule the agents of a group speak; a field that the kind has not is refused. Letta has no limits of
    tokens and money."""

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

    def check_kind(self, group: Group) -> None:
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
        values: dict[str, Any] = {**self.changes}
        return NewGroup(kind=kind, **values)


def group_shape(group: Group) -> dict[str, Any]:
    """The group with all fields of the wire; limits of ours where they are set."""
    own = fields(group, "max_tokens", "max_cost_usd")
    return {
        **fields(group, "id", manager_type="kind"),
        **fields(group, "agent_ids", "description", "project_id"),
        **nulls("template_id", "base_template_id", "deployment_id"),
        **fields(group, "shared_block_ids", "manager_agent_id", "termination_token", "max_turns", **_RENAMED),
        **fields(group, "turns_counter", last_processed_message_id="last_message_id"),
        **fields(group, "max_message_buffer_length", "min_message_buffer_length"),
        "hidden": group.hidden or None,
        **{name: value for name, value in own.items() if value is not None},
    }


def group_messages(body: SendRequest) -> Sequence[NewMessage]:
    """The messages of a request to a group. Raises: InvalidInput: it answers calls; NotSupported: it has an option that
    is of one agent's run."""
    if options := sorted(body.model_fields_set & ONE_AGENT_OPTIONS):
        raise NotSupported(f"{options[0]}: a group's agents have their own; send it to an agent, or leave it out")
    messages, answers = body.contents()
    if answers is not None:
        raise InvalidInput(
            "messages: a group takes no answers to calls. Send them to the agent that waits: POST"
            " /v1/agents/{agent_id}/messages"
        )
    return messages
