"""Tools: one per name, and a new settings revision for their agents whenever what a model sees changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import DEFAULT_ORG, AgentId, ToolId
from perdure.core.specs import Tool, ToolCode, ToolFilter, ToolSpec
from perdure.storage.tables.deleted import delete_shared
from perdure.storage.tables.table import OwnId
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, Contract, raises

CODE = ToolCode(
    source="def look(at: str):\n    'Look. \x00 \ud800 🧭'\n",
    function="look",
    requirements=("httpx==0.28.1",),
    environment={"KEY": "secret:KEY"},
    network=("api.example.org",),
    memory_mb=128,
    takes_agent=True,
    left_empty=("client",),
)


def add(tool: Tool, tx: Tx) -> Tool:
    return tx.tools.add(tool, at=AT)


def find(where: ToolFilter, tx: Tx) -> tuple[list[Tool], int]:
    return list(tx.tools.page(where=where, ascending=True)), tx.tools.count(where)


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
        async with self.open_store() as store:
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
            assert await store.read(lambda tx: tx.tools.find_named(["absent", "look"])) == {"look": look}
            absent = ToolId(self.ids.new("tool"))
            assert await store.read(lambda tx: tx.tools.list_by_ids([absent, look.id])) == {look.id: look}
            assert await store.read(lambda tx: tx.tools.names([look.id])) == ["look"]
            with raises(NotFound):
                await store.read(lambda tx: tx.tools.names([look.id, absent]))

    async def test_putting_an_unchanged_tool_changes_nothing(self) -> None:
        """The same tool under a fresh id is the stored one, and its agents keep their revision."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            tool = await store.write(lambda tx: tx.tools.put(self.tool(), at=AT))
            await store.write(lambda tx: tx.tools.attach(agent.id, "look"))
            again = await store.write(lambda tx: tx.tools.put(self.tool(), at=LATER))

            assert again == tool
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 1

    async def test_a_changed_tool_makes_a_new_revision(self) -> None:
        """It keeps its id; agents that have it get a new settings revision, others don't."""
        async with self.open_store() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            tool = await store.write(lambda tx: tx.tools.put(self.tool(), at=AT))
            await store.write(lambda tx: tx.tools.attach(agent.id, "look"))
            changed = await store.write(lambda tx: tx.tools.put(self.tool(description="Look closely."), at=LATER))

            assert changed == replace(tool, spec=replace(tool.spec, description="Look closely."))
            assert await store.read(lambda tx: tx.tools.list_by_agent(agent.id)) == [changed]
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 2
            assert (await store.read(lambda tx: tx.agents.get(other.id))).settings_revision == 0

    async def test_attaching_and_detaching_make_new_revisions(self) -> None:
        """Each time, but not for attaching what is attached; an agent's tools are sorted by name."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(lambda tx: [tx.tools.put(self.tool(name), at=AT) for name in ("b", "a")])

            async def revision_and_tools() -> tuple[int, list[str]]:
                def look(tx: Tx) -> tuple[int, list[str]]:
                    names = [tool.spec.name for tool in tx.tools.list_by_agent(agent.id)]
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
        async with self.open_store() as store:
            tool = await store.write(lambda tx: tx.tools.put(self.tool(), at=AT))

            assert await store.read(lambda tx: tx.tools.get(tool.id)) == tool
            with raises(NotFound):
                await store.read(lambda tx: tx.tools.get(ToolId("tool-1")))

    async def test_unknown_tools_and_agents_are_told(self) -> None:
        """Nothing is attached or detached that is not there."""
        async with self.open_store() as store:
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

    async def test_a_tool_keeps_the_source_that_it_runs(self) -> None:
        """Every field of it; what is put without source has none."""
        async with self.open_store() as store:
            look, ask = self.tool(kind="custom"), self.tool("ask")
            assert await store.write(lambda tx: tx.tools.add(look, code=CODE, at=AT)) == look
            await store.write(lambda tx: tx.tools.put(ask, at=AT))

            assert await store.read(lambda tx: tx.tools.code(look.id)) == CODE
            assert await store.read(lambda tx: tx.tools.code(ask.id)) is None
            assert await store.read(lambda tx: tx.tools.codes([ask.id, look.id, ToolId("tool-1")])) == {look.id: CODE}
            assert await store.read(lambda tx: tx.tools.codes([])) == {}
            with raises(NotFound):
                await store.read(lambda tx: tx.tools.code(ToolId("tool-1")))

    async def test_a_name_and_an_id_are_taken_once(self) -> None:
        """Adding what is there is refused, and leaves it as it was."""
        async with self.open_store() as store:
            look = await store.write(lambda tx: tx.tools.add(self.tool(), code=CODE, at=AT))
            for twin in (self.tool(description="Mine."), replace(self.tool("ask"), id=look.id)):
                with raises(AlreadyExists):
                    await store.write(partial(add, twin))

            assert await store.read(lambda tx: tx.tools.list()) == [look]
            assert await store.read(lambda tx: tx.tools.code(look.id)) == CODE

    async def test_a_tool_is_changed_by_its_id(self) -> None:
        """Its name too, unless another has it; a change of its source alone makes no new revision of its agents."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            look = await store.write(lambda tx: tx.tools.add(self.tool(kind="custom"), code=CODE, at=AT))
            ask = await store.write(lambda tx: tx.tools.add(self.tool("ask"), at=AT))
            await store.write(lambda tx: tx.tools.attach(agent.id, "look"))
            newer = replace(CODE, source="def look(at: str): ...")
            await store.write(lambda tx: tx.tools.update(look, code=newer, at=LATER))
            assert await store.read(lambda tx: tx.tools.code(look.id)) == newer
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 1
            peek = replace(look, spec=replace(look.spec, name="peek", tool_type="external_mcp"), tags=("c",))
            assert await store.write(lambda tx: tx.tools.update(peek, at=LATER)) == peek
            with raises(AlreadyExists):
                await store.write(
                    lambda tx: tx.tools.update(replace(peek, spec=replace(peek.spec, name="ask")), at=LATER)
                )
            with raises(NotFound):
                await store.write(lambda tx: tx.tools.update(replace(peek, id=ToolId("tool-1")), at=LATER))

            assert await store.read(lambda tx: tx.tools.list()) == [ask, peek]
            assert await store.read(lambda tx: tx.tools.code(look.id)) is None
            assert await store.read(lambda tx: tx.tools.find_by_name("look")) is None
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 2
            found = await store.read(lambda tx: tx.tools.page(where=ToolFilter(types=("external_mcp",))))
            assert found == [peek]

    async def test_what_another_transaction_has_deleted_meanwhile_is_deleted(self) -> None:
        """Between the look at a thing and its delete, which PostgreSQL allows."""
        async with self.open_store() as store:
            look = await store.write(partial(add, self.tool()))

            def delete_twice(tx: Any) -> None:
                for _ in range(2):
                    delete_shared(tx.tools._db, DEFAULT_ORG, "tools", OwnId(look.id))

            await store.write(delete_twice)
            assert await store.read(partial(find, ToolFilter())) == ([], 0)

    async def test_a_deleted_tool_is_gone_from_its_agents(self) -> None:
        """Their settings revision grows; those of others don't."""
        async with self.open_store() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            look = await store.write(lambda tx: tx.tools.add(self.tool(), code=CODE, at=AT))
            await store.write(lambda tx: tx.tools.attach(agent.id, "look"))
            await store.write(lambda tx: tx.tools.delete(look.id))

            assert await store.read(lambda tx: tx.tools.list_by_agent(agent.id)) == []
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 2
            assert (await store.read(lambda tx: tx.agents.get(other.id))).settings_revision == 0
            units: tuple[Callable[[Tx], Any], ...] = (
                lambda tx: tx.tools.get(look.id),
                lambda tx: tx.tools.delete(look.id),
            )
            for unit in units:
                with raises(NotFound):
                    await store.write(unit)
            again = await store.write(lambda tx: tx.tools.add(self.tool(), at=LATER))
            assert await store.read(lambda tx: tx.tools.list()) == [again]

    async def test_tools_are_listed_in_order_of_creation(self) -> None:
        """By pages both ways, each tool once; a page begins at no tool that is not there."""
        async with self.open_store() as store:
            made = [await store.write(partial(add, self.tool(name))) for name in ("c", "a", "e", "b", "d")]

            def page(tx: Tx, ascending: bool, cursor: ToolId | None, backwards: bool) -> Sequence[Tool]:
                after, before = (None, cursor) if backwards else (cursor, None)
                return tx.tools.page(where=ToolFilter(), ascending=ascending, limit=2, after=after, before=before)

            async def pages(ascending: bool, *, backwards: bool) -> list[Tool]:
                found: list[Tool] = []
                while part := await store.read(
                    page, ascending, found[0 if backwards else -1].id if found else None, backwards
                ):
                    found = [*part, *found] if backwards else [*found, *part]
                return found

            assert await pages(True, backwards=False) == made
            assert await pages(False, backwards=False) == made[::-1]
            newest = await store.read(
                lambda tx: tx.tools.page(where=ToolFilter(), ascending=True, limit=2, before=made[3].id)
            )
            assert newest == made[1:3]
            with raises(NotFound):
                await store.read(lambda tx: tx.tools.page(where=ToolFilter(), after=ToolId("tool-1")))

    async def test_tools_are_found_by_what_they_are(self) -> None:
        """Each condition alone and two together; none of a list lets nothing through."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            look = await store.write(lambda tx: tx.tools.add(self.tool("look_up"), at=AT))
            ask = await store.write(
                lambda tx: tx.tools.add(replace(self.tool("ask", tool_type="letta_builtin"), tags=("it's", "%")), at=AT)
            )
            odd = await store.write(lambda tx: tx.tools.add(self.tool("lettaX", tool_type="lettaXcore"), at=AT))
            await store.write(lambda tx: tx.tools.attach(agent.id, "ask"))
            found: list[tuple[ToolFilter, list[Tool]]] = [
                (ToolFilter(), [look, ask, odd]),
                (ToolFilter(names=("ask", "look_up", "none")), [look, ask]),
                (ToolFilter(names=()), []),
                (ToolFilter(ids=(odd.id,)), [odd]),
                (ToolFilter(ids=()), []),
                (ToolFilter(types=("custom", "letta_builtin")), [look, ask]),
                (ToolFilter(not_types=("custom",)), [ask, odd]),
                (ToolFilter(letta=True), [ask]),
                (ToolFilter(letta=False), [look, odd]),
                (ToolFilter(text="K_"), [look]),
                (ToolFilter(text="LETTA"), [odd]),
                (ToolFilter(tags=("it's", "none")), [ask]),
                (ToolFilter(tags=("it",)), []),
                (ToolFilter(tags=()), []),
                (ToolFilter(agent_id=agent.id), [ask]),
                (ToolFilter(types=("custom",), text="ask"), []),
            ]
            for where, wanted in found:
                assert await store.read(partial(find, where)) == (wanted, len(wanted)), where
