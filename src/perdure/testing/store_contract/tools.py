"""Tools: one per name, and a new settings revision for their agents whenever what a model sees changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ToolId
from perdure.core.tools import Tool, ToolSpec
from perdure.core.tx import Tx
from perdure.testing.store_contract.base import AT, LATER, Contract, raises

__all__ = ["ToolContract"]


class ToolContract(Contract):
    def tool(self, name: str = "look", description: str = "Look.", **fields: Any) -> Tool:
        spec = ToolSpec(
            name=name,
            description=description,
            parameters={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
            **fields,
        )
        return Tool(id=ToolId(self.ids.new("tool")), spec=spec, tags=("a", "b"), metadata={"k": [1]})

    async def test_a_tool_comes_back_as_it_was_put(self) -> None:
        """Every field of its spec survives; tools are listed by name."""
        async with self.opened() as store:
            look = self.tool(
                kind="function",
                tool_type="custom",
                idempotent=True,
                parallel=True,
                return_limit_chars=7,
                timeout_s=1.5,
                description="\x00 \ud800 🧭",
            )
            ask = self.tool("ask", kind="memory")
            assert await store.write(lambda tx: tx.tools.put(look, at=AT)) == look
            assert await store.write(lambda tx: tx.tools.put(ask, at=AT)) == ask
            assert await store.read(lambda tx: tx.tools.list()) == [ask, look]
            assert await store.read(lambda tx: tx.tools.find_by_name("look")) == look
            assert await store.read(lambda tx: tx.tools.find_by_name("absent")) is None

    async def test_putting_an_unchanged_tool_changes_nothing(self) -> None:
        """The same tool under a fresh id is the stored one, and its agents keep their revision."""
        async with self.opened() as store:
            agent = await store.write(self.add_agent)
            tool = await store.write(lambda tx: tx.tools.put(self.tool(), at=AT))
            await store.write(lambda tx: tx.tools.attach(agent.id, "look"))
            again = await store.write(lambda tx: tx.tools.put(self.tool(), at=LATER))

            assert again == tool
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 1

    async def test_a_changed_tool_makes_a_new_revision(self) -> None:
        """It keeps its id; agents that have it get a new settings revision, others don't."""
        async with self.opened() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            tool = await store.write(lambda tx: tx.tools.put(self.tool(), at=AT))
            await store.write(lambda tx: tx.tools.attach(agent.id, "look"))
            changed = await store.write(lambda tx: tx.tools.put(self.tool(description="Look closely."), at=LATER))

            assert changed == replace(tool, spec=replace(tool.spec, description="Look closely."))
            assert await store.read(lambda tx: tx.tools.of_agent(agent.id)) == [changed]
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 2
            assert (await store.read(lambda tx: tx.agents.get(other.id))).settings_revision == 0

    async def test_attaching_and_detaching_make_new_revisions(self) -> None:
        """Each time, but not for attaching what is attached; an agent's tools are sorted by name."""
        async with self.opened() as store:
            agent = await store.write(self.add_agent)
            await store.write(lambda tx: [tx.tools.put(self.tool(name), at=AT) for name in ("b", "a")])

            async def revision_and_tools() -> tuple[int, list[str]]:
                def look(tx: Tx) -> tuple[int, list[str]]:
                    names = [tool.spec.name for tool in tx.tools.of_agent(agent.id)]
                    return tx.agents.get(agent.id).settings_revision, names

                return await store.read(look)

            await store.write(lambda tx: tx.tools.attach(agent.id, "b"))
            assert await revision_and_tools() == (1, ["b"])
            await store.write(lambda tx: tx.tools.attach(agent.id, "b"))
            assert await revision_and_tools() == (1, ["b"])
            await store.write(lambda tx: tx.tools.attach(agent.id, "a"))
            assert await revision_and_tools() == (2, ["a", "b"])
            await store.write(lambda tx: tx.tools.detach(agent.id, "b"))
            assert await revision_and_tools() == (3, ["a"])

    async def test_a_tool_is_found_by_its_id(self) -> None:
        """And by nobody else's."""
        async with self.opened() as store:
            tool = await store.write(lambda tx: tx.tools.put(self.tool(), at=AT))

            assert await store.read(lambda tx: tx.tools.get(tool.id)) == tool
            with raises(NotFound):
                await store.read(lambda tx: tx.tools.get(ToolId("tool-1")))

    async def test_unknown_tools_and_agents_are_told(self) -> None:
        """Nothing is attached or detached that is not there."""
        async with self.opened() as store:
            agent = await store.write(self.add_agent)
            await store.write(lambda tx: tx.tools.put(self.tool(), at=AT))
            units: tuple[Callable[[Tx], Any], ...] = (
                lambda tx: tx.tools.attach(agent.id, "absent"),
                lambda tx: tx.tools.attach(AgentId(self.ids.new("agent")), "look"),
                lambda tx: tx.tools.detach(agent.id, "look"),
                lambda tx: tx.tools.detach(agent.id, "absent"),
            )
            for unit in units:
                with raises(NotFound):
                    await store.write(unit)

            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 0
