"""An agent on an inline store with a run in progress, and calls of its tools as the engine makes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.context.sections.expand import Budget
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.agents import Agent
from perdure.core.blocks import Author, Block
from perdure.core.ids import MessageId, RunId
from perdure.core.messages import Draft, Part, Role, Text
from perdure.core.runs import Run
from perdure.core.specs import ToolOutcome
from perdure.core.tools.arguments import parse_arguments
from perdure.core.tools.engine_specs import MEMORY_TOOL_SPECS
from perdure.domain.agents.units import NewAgent, create_agent
from perdure.domain.blocks.units import NewBlock
from perdure.domain.tools.calls import MemoryCall
from perdure.domain.tools.memory_tools import MEMORY_TOOLS
from perdure.domain.tools.units import put_tools
from perdure.engine.search.search import Search
from perdure.engine.search.tools import SearchCall, search_tools
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, SequentialIds

USER = Author(kind="user", id="user-1")


@dataclass
class AgentInRun:
    store: InlineStore
    clock: FakeClock
    ids: SequentialIds
    agent: Agent
    run: Run

    async def call(self, name: str, **arguments: Any) -> ToolOutcome:
        """What the tool gives for these arguments, which are checked first as a model's are."""
        checked = parse_arguments(name, MEMORY_TOOL_SPECS[name].parameters, json.dumps(arguments))
        if name in search_tools():
            run = await self.store.read(lambda tx: tx.runs.get_by_key(self.run.key))
            search = Search(self.store, self.clock)
            called = SearchCall(
                run=run,
                timezone=self.agent.timezone,
                now=self.clock.now(),
                search=search,
                store=self.store,
                budget=Budget(ScriptTokenCounter(), 4_000),
            )
            return await search_tools()[name](called, **checked)
        return await self.store.write(self.run_tool, name, checked)

    def run_tool(self, tx: Tx, name: str, arguments: dict[str, Any]) -> ToolOutcome:
        call = MemoryCall(
            agent=tx.agents.get(self.agent.id),
            run=tx.runs.get_by_key(self.run.key),
            message_id=MessageId("message-of-the-call"),
            now=self.clock.now(),
            ids=self.ids,
        )
        return MEMORY_TOOLS[name](tx, call, **arguments)

    async def json(self, name: str, **arguments: Any) -> Any:
        """The tool's result, read as JSON."""
        return json.loads((await self.call(name, **arguments)).text)

    async def block(self, label: str) -> Block:
        block = await self.store.read(lambda tx: tx.blocks.find(self.agent.id, label))
        assert block is not None, f"there is no block {label!r}"
        return block

    async def labels(self) -> list[str]:
        return [block.label for block in await self.store.read(lambda tx: tx.blocks.list_by_agent(self.agent.id))]

    async def say(self, *what: str | Part, role: Role = "user", at: datetime | None = None) -> None:
        """One message of these texts or parts, said at `at`."""
        draft = Draft(
            id=MessageId(self.ids.new("message")),
            role=role,
            parts=tuple(Text(part) if isinstance(part, str) else part for part in what),
            occurred_at=at,
        )
        now = self.clock.now()
        await self.store.write(lambda tx: tx.messages.append((self.agent.id, 0), [draft], [1], at=now))

    async def begin_run(self) -> None:
        """From here on, what is said belongs to the current run."""

        def begin(tx: Tx) -> None:
            messages = tx.messages.list(self.agent.id, newest_first=True, limit=1, kinds=None)
            tx.runs.begin_input(self.run.key, first_message_seq=messages[0].seq + 1 if messages else 0)

        await self.store.write(begin)


async def agent_in_run(*blocks: NewBlock, timezone: str = "UTC") -> AgentInRun:
    """An agent with these blocks, all memory tools, and a run in progress."""
    clock, ids, store = FakeClock(), SequentialIds(), InlineStore()

    def make(tx: Tx) -> tuple[Agent, Run]:
        put_tools(tx, tuple(MEMORY_TOOL_SPECS.values()), ids=ids, at=clock.now())
        new = NewAgent(name="ada", model="test/model", blocks=blocks, timezone=timezone, tools=tuple(MEMORY_TOOL_SPECS))
        agent = create_agent(tx, new, ids=ids, author=USER, at=clock.now())
        run = tx.runs.add(
            tx.conversations.get_state(agent.id, 0),
            RunId(ids.new("run")),
            at=clock.now(),
            max_steps=50,
            background=False,
            lease_owner=None,
            lease_until=None,
            waiting_input="[]",
        )
        until = clock.now() + timedelta(seconds=15)
        claimed = tx.runs.claim(run.key, owner="here", at=clock.now(), until=until)
        assert claimed is not None
        return agent, claimed

    agent, run = await store.write(make)
    return AgentInRun(store, clock, ids, agent, run)
