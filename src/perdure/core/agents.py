"""Agents and their settings, and identities: who an agent or a block belongs to in the caller's world, such as one of
its users. An agent's memory is in blocks, passages and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.errors import NameInvalid
from perdure.core.ids import AgentId, ArchiveId, BlockId, IdentityId, OrgId
from perdure.core.runs import RunOptions, StopReason
from perdure.core.text.forms import in_name_form
from perdure.core.text.reprs import short_repr

AUTOCLEAR = "message_buffer_autoclear"
"""The setting of an agent whose view holds no earlier request: each begins with its memory only."""

DEFAULT_AGENT_TYPE = "letta_v1_agent"

_NAME = re.compile(r"[\w '\-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("name", "tags")
class Agent:
    """One agent.

    `system` is a custom base prompt; None means Perdure's own. `follows_default`: `model` is the one of the last run,
    and the default may give the next run another; else it is pinned. `settings` are the options of models, tools and
    context that have no column of their own; `settings_revision` grows by one whenever anything that shapes a request
    changes, so that a recorded request can name what it was made with. `message_count` is how many messages its
    history had when this was read, the engine's own left out. `number` is a small per-store number that full-text
    indexes use as the agent's scope.
    """

    __repr__ = short_repr("id", "name", "model")

    id: AgentId
    org_id: OrgId
    number: int = 0
    name: str
    agent_type: str = DEFAULT_AGENT_TYPE
    model: str
    follows_default: bool = False
    system: str | None = None
    description: str | None = None
    timezone: str = "UTC"
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_revision: int = 0
    message_count: int = field(default=0, compare=False)
    hidden: bool = False
    created_at: datetime
    updated_at: datetime
    created_by: str | None = None
    updated_by: str | None = None


LISTED = ("name", "id", "model", "follows_default", "description", "tags", "created_at", "updated_at")
"""The fields that commands and pages show of an agent in a list."""


def check_name(name: str, *, kind: str = "agent") -> str:
    """Return `name` after checking it. Raises: NameInvalid: too long, or not only letters, digits, space, _ ' -."""
    if not _NAME.fullmatch(name) or not name.strip():
        raise NameInvalid(kind, name)
    return name


GUARDS = "guards"
"""Where an agent's settings hold the fields of its `GuardSettings`."""


OWN_TAGS = "perdure:"
"""How tags begin that Perdure gives to agents which keep the memory of other programs, and to discarded ones."""

DISCARDED = f"{OWN_TAGS}discarded"
"""The tag of an agent that lists leave out until it is restored or deleted, and that no schedule wakes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """What the tail of a request says about the agent's own work, and which calls are stopped; 0 turns a guard off. The
    defaults are those of an agent that works alone; in a chat, where a person sees what it does, most are off.

    Args:
        memory_pressure: the share of the window from which on the agent is told, once per eviction, that messages will
            leave its view.
        failed_repeats: a call that failed so often, with nothing new learned meanwhile, is not run again.
        stalled_steps: after so many steps in a row without progress, or calls that fail in the same way, it is warned.
        ask_steps: after so many steps in a row without progress it is told to ask the user.
        turn_steps: after so many steps since the user spoke it is told to ask the user, whatever the steps did.
        recent_steps: the newest steps that are listed with a line each.
    """

    memory_pressure: float = 0.9
    failed_repeats: int = 3
    stalled_steps: int = 7
    ask_steps: int = 30
    turn_steps: int = 0
    recent_steps: int = 20

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], options: RunOptions) -> GuardSettings:
        """Return the guards in an agent's `settings`, for a run with these options: the agent works alone if a
        schedule, an event or another agent began it. The value `true` there turns on all that have a default, in chats
        too; `false` turns all off."""
        value = settings.get(GUARDS)
        alone = options.alone or options.origin is not None or options.caller is not None
        if isinstance(value, bool):
            return cls() if value else cls(memory_pressure=0, **_OFF_IN_CHATS)
        own: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        return cls(**{**({} if alone else _OFF_IN_CHATS), **own})


_OFF_IN_CHATS: Mapping[str, int] = {"failed_repeats": 0, "stalled_steps": 0, "ask_steps": 0, "recent_steps": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("name", "text", "tags", "identifier_keys")
class AgentFilter:
    """Selects agents, for which all conditions must hold; None and empty ask for nothing.

    `name` is the whole name, `text` a part of it in any case. `all_tags`: every tag is needed, not only one of them.
    `block_id`, `archive_id`: they have this block, this archive; `sharing`: a thing of a feature, as (table, id).
    `identity_id`, `identifier_keys`: they belong to this identity, to one with one of these keys. `stop_reason`: how
    their newest run ended. `holding`: what their settings hold, each as (name of an object in them, name in that
    object, value).
    """

    name: str | None = None
    text: str | None = None
    tags: tuple[str, ...] = ()
    all_tags: bool = False
    block_id: BlockId | None = None
    archive_id: ArchiveId | None = None
    sharing: tuple[str, str] | None = None
    identity_id: IdentityId | None = None
    identifier_keys: tuple[str, ...] = ()
    created_by: str | None = None
    stop_reason: StopReason | None = None
    holding: tuple[tuple[str, str, str], ...] = ()
    hidden: bool | None = None


AgentOrder = Literal["created", "updated", "used", "name", "messages"]
"""The order of agents: by creation, last change, last run (those without a run first), name or number of messages."""


IdentityType = Literal["org", "user", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("identifier_key", "name", "project_id")
class Identity:
    """One identity.

    Args:
        identifier_key: the caller's own name for it, unique within its project.
        properties: objects with `key`, `value` and `type`; each key occurs once.
    """

    id: IdentityId
    org_id: OrgId
    number: int = 0
    identifier_key: str
    name: str
    identity_type: IdentityType
    project_id: str | None = None
    properties: tuple[Mapping[str, Any], ...] = ()
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("identifier_key", "name", "project_id")
class IdentityFilter:
    """Selects identities, for which all conditions must hold. `name` is a part of the name in any case."""

    name: str | None = None
    project_id: str | None = None
    identifier_key: str | None = None
    identity_type: IdentityType | None = None
