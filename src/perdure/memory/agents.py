"""Making an agent: its row, its default conversation, its blocks and its tools, all in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.core.agents import DEFAULT_AGENT_TYPE, Agent, check_name
from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Author
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, BlockId, ConversationId, ToolId
from perdure.core.ports import Ids
from perdure.core.tools import Tool, ToolSpec
from perdure.core.tx import Tx
from perdure.core.zones import is_zone
from perdure.memory.blocks import create_block
from perdure.memory.tool_specs import DEFAULT_TOOLS

__all__ = ["NewAgent", "NewBlock", "create_agent", "put_tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBlock:
    """A block to be made with an agent."""

    label: str
    value: str = ""
    limit_chars: int = DEFAULT_LIMIT_CHARS
    description: str | None = None
    read_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgent:
    """What an agent is made of. `block_ids` are existing blocks that it will share; `tools` are names, None the
    defaults of its type."""

    name: str
    model: str
    agent_type: str = DEFAULT_AGENT_TYPE
    system: str | None = None
    description: str | None = None
    timezone: str = "UTC"
    blocks: tuple[NewBlock, ...] = ()
    block_ids: tuple[BlockId, ...] = ()
    tools: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def create_agent(tx: Tx, new: NewAgent, *, ids: Ids, author: Author, at: datetime) -> Agent:
    """The new agent. Raises: NameInvalid, InvalidInput, NotFound: a tool or block; AlreadyExists;
    BlockLimitExceeded."""
    if not is_zone(new.timezone):
        raise InvalidInput(f"time zone {new.timezone!r:.80} is not known here: use a name such as 'Europe/Rome'")
    agent = tx.agents.add(
        Agent(
            id=AgentId(ids.new("agent")),
            org_id=tx.org_id,
            name=check_name(new.name),
            agent_type=new.agent_type,
            model=new.model,
            system=new.system,
            description=new.description,
            timezone=new.timezone,
            tags=new.tags,
            metadata=new.metadata,
            settings=new.settings,
            created_at=at,
            updated_at=at,
            created_by=author.id,
            updated_by=author.id,
        )
    )
    tx.conversations.add(agent.id, ConversationId(ids.new("conversation")), at=at)
    for block in new.blocks:
        create_block(
            tx,
            BlockId(ids.new("block")),
            block.label,
            block.value,
            author=author,
            at=at,
            limit_chars=block.limit_chars,
            description=block.description,
            read_only=block.read_only,
            metadata=block.metadata,
            tags=block.tags,
            agent_id=agent.id,
        )
    for block_id in new.block_ids:
        tx.blocks.attach(agent.id, block_id)
    for name in DEFAULT_TOOLS.get(new.agent_type, ()) if new.tools is None else new.tools:
        tx.tools.attach(agent.id, name)
    return tx.agents.get(agent.id)


def put_tools(tx: Tx, specs: Sequence[ToolSpec], *, ids: Ids, at: datetime) -> None:
    """Have these tools stored as they are now; those that have not changed are left alone."""
    for spec in specs:
        tx.tools.put(Tool(id=ToolId(ids.new("tool")), spec=spec), at=at)
