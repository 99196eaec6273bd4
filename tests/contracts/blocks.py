"""Blocks: a version for every edit, no lost edit, and one label per agent."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.blocks import Author, Block, BlockFilter, BlockVersion, append_text
from perdure.core.errors import AlreadyExists, Conflict, NotFound, TooMany, VersionConflict
from perdure.core.ids import AgentId, BlockId, MessageId, RunId
from perdure.core.text.line_diff import unified_diff
from perdure.domain.blocks.units import edit_block, find_block, restore_block
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, AWKWARD, Contract, raises


def put_value(tx: Tx, block: Block, value: str) -> Block:
    """The block with another value, if it is still as `block` was read."""
    return tx.blocks.put(replace(block, value=value), expected=block.version, author=ADA, at=AT)


def labels_of(tx: Tx, agent_id: AgentId) -> list[str]:
    return [block.label for block in tx.blocks.list_by_agent(agent_id)]


class BlockContract(Contract):
    async def test_every_edit_is_a_version(self) -> None:
        """Versions count from 0 without gaps, newest first, each with its value, diff, author and time."""
        async with self.open_store() as store:
            block = await store.write(self.add_block, "human", "Ada")
            author = Author(
                kind="agent",
                id="agent-1",
                agent_id=AgentId("agent-1"),
                run_id=RunId("run-1"),
                message_id=MessageId("message-1"),
            )
            values = ["Ada\nlikes tea", "Ada\nlikes tea", ""]

            def put(tx: Tx, block: Block, expected: int) -> Block:
                at = AT + timedelta(seconds=expected + 1)
                return tx.blocks.put(block, expected=expected, author=author, at=at)

            edited = block
            for index, value in enumerate(values, start=1):
                change = replace(edited, value=value, description=f"edit {index}")
                edited = await store.write(put, change, index - 1)

            def versions(tx: Tx) -> list[BlockVersion]:
                return list(tx.blocks.versions(block.id))

            history = await store.read(versions)
            assert edited == replace(
                block,
                value="",
                description="edit 3",
                version=3,
                updated_at=AT + timedelta(seconds=3),
                updated_by=author.id,
            )
            assert await store.read(lambda tx: tx.blocks.get(block.id)) == edited
            assert [version.version for version in history] == [3, 2, 1, 0]
            assert [version.value for version in history] == ["", values[1], values[0], "Ada"]
            assert [version.diff for version in history] == [
                unified_diff(values[1], ""),
                "",
                unified_diff("Ada", values[0]),
                unified_diff("", "Ada"),
            ]
            assert [version.author for version in history] == [author, author, author, ADA]
            assert [version.created_at for version in history] == [AT + timedelta(seconds=3 - i) for i in range(4)]
            assert await store.read(lambda tx: tx.blocks.version(block.id, 1)) == history[2]
            assert await store.read(lambda tx: tx.blocks.versions(block.id, before=2, limit=1)) == [history[2]]
            with raises(NotFound):
                await store.read(lambda tx: tx.blocks.version(block.id, 4))

    async def test_a_block_comes_back_as_it_was_put(self) -> None:
        """Every field survives, whatever characters it holds; so does its history."""
        async with self.open_store() as store:
            org_id = await store.read(lambda tx: tx.org_id)

            def add(tx: Tx, block: Block, author: Author) -> Block:
                return tx.blocks.add(block, author=author)

            def put_after(tx: Tx, block: Block, author: Author) -> Block:
                return tx.blocks.put(block, expected=0, author=author, at=AT)

            def get(tx: Tx, block_id: BlockId) -> Block:
                return tx.blocks.get(block_id)

            def history(tx: Tx, block_id: BlockId) -> list[tuple[str, str, str, str]]:
                return [(one.label, one.value, one.diff, one.author.id) for one in tx.blocks.versions(block_id)]

            for text in AWKWARD:
                author = Author(kind="user", id=text)
                block = Block(
                    id=BlockId(self.ids.new("block")),
                    org_id=org_id,
                    label=text,
                    value=text,
                    limit_chars=123,
                    description=text,
                    read_only=True,
                    metadata={text: [text, 1.5, None]},
                    tags=(text, "b"),
                    is_template=True,
                    hidden=True,
                    created_at=AT,
                    updated_at=AT,
                    created_by=text,
                    updated_by=text,
                )
                after = replace(block, value=f"{text}!")

                await store.write(add, block, author)
                put = await store.write(put_after, after, author)
                assert put == replace(after, version=1)
                assert await store.read(get, block.id) == put
                assert await store.read(history, block.id) == [
                    (text, f"{text}!", unified_diff(text, f"{text}!"), text),
                    (text, text, unified_diff("", text), text),
                ]

    async def test_an_outdated_edit_is_a_conflict(self) -> None:
        """Whoever edits a version that is no longer the newest is told both, and nothing is written."""
        async with self.open_store() as store:
            block = await store.write(self.add_block, "human", "a")
            await store.write(put_value, block, "b")
            with raises(VersionConflict) as caught:
                await store.write(put_value, block, "c")

            assert (caught.error.expected, caught.error.found) == (0, 1)
            assert "version 1, not 0" in str(caught.error)
            assert (await store.read(lambda tx: tx.blocks.get(block.id))).value == "b"
            assert [v.version for v in await store.read(lambda tx: tx.blocks.versions(block.id))] == [1, 0]

    async def test_concurrent_editors_lose_nothing(self) -> None:
        """Two handles, many tasks, each repeating its edit on a conflict: every line is there, every version is."""
        async with self.open_store() as one, self.open_store() as other:
            block = await one.write(self.add_block)

            async def add_line(store: Store, line: str) -> None:
                while True:
                    seen = await store.read(lambda tx: tx.blocks.get(block.id))
                    try:
                        await store.write(put_value, seen, f"{seen.value}{line}\n")
                    except VersionConflict as conflict:
                        assert conflict.found is not None
                        assert conflict.found > conflict.expected
                    else:
                        return

            lines = [f"{name} {index}" for name in ("one", "other") for index in range(6)]
            await asyncio.gather(*(add_line(one if line.startswith("one") else other, line) for line in lines))
            final = await one.read(lambda tx: tx.blocks.get(block.id))
            history = await one.read(lambda tx: tx.blocks.versions(block.id))

            assert sorted(final.value.splitlines()) == sorted(lines)
            assert [version.version for version in history] == list(range(len(lines), -1, -1))
            assert all(len(new.value) > len(old.value) for new, old in itertools.pairwise(history))

    async def test_an_edit_without_a_version_is_one_step(self) -> None:
        """An agent's tool edits what the block holds now: two handles at once never get in each other's way."""
        async with self.open_store() as one, self.open_store() as other:
            agent = await one.write(self.add_agent)
            block = await one.write(lambda tx: self.add_block(tx, "human", agent_id=agent.id))
            lines = [f"line {index}" for index in range(12)]

            def add_line(tx: Tx, line: str) -> Block:
                return edit_block(tx, agent.id, "human", lambda block: append_text(block, line), author=ADA, at=AT)

            await asyncio.gather(*((one, other)[i % 2].write(add_line, line) for i, line in enumerate(lines)))
            final = await one.read(lambda tx: tx.blocks.get(block.id))

            assert sorted(final.value.splitlines()) == sorted(lines)
            assert final.version == len(lines)

    async def test_a_shared_block_is_one_block(self) -> None:
        """An edit for one agent is seen by all that share the block."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.add_agent, "ada"), await store.write(self.add_agent, "bob")
            block = await store.write(lambda tx: self.add_block(tx, "team", "red", agent_id=ada.id))
            await store.write(lambda tx: tx.blocks.attach(bob.id, block.id))
            await store.write(put_value, block, "blue")

            for agent_id in (ada.id, bob.id):
                found = await store.read(find_block, agent_id, "team")
                assert (found.value, found.version) == ("blue", 1)

    async def test_an_agent_has_one_block_of_a_label(self) -> None:
        """Attaching a second block of a label is refused; attaching the same one again is no error."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            block = await store.write(lambda tx: self.add_block(tx, "human", agent_id=agent.id))
            other = await store.write(self.add_block, "human")
            await store.write(lambda tx: tx.blocks.attach(agent.id, block.id))
            with raises(AlreadyExists):
                await store.write(lambda tx: tx.blocks.attach(agent.id, other.id))

            assert await store.read(lambda tx: tx.blocks.list_by_agent(agent.id)) == [block]

    async def test_an_agent_has_at_most_so_many_blocks(self) -> None:
        """Many are attached at once, in their order; the one over the limit is refused, with all that come with it."""

        def attach(tx: Tx, agent_id: AgentId, numbers: range) -> None:
            blocks = [self.add_block(tx, f"b{number}") for number in numbers]
            tx.blocks.attach(agent_id, *(block.id for block in blocks))

        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            most = await store.read(lambda tx: tx.limits.blocks_per_agent)
            await store.write(attach, agent.id, range(most))

            with raises(TooMany) as refused:
                await store.write(attach, agent.id, range(most, most + 3))

            labels = await store.read(labels_of, agent.id)

            assert labels == [f"b{number}" for number in range(most)]
            assert await store.read(lambda tx: tx.blocks.size(agent.id)) == 0
            assert (refused.error.count, refused.error.limit) == (most + 1, most)
            assert refused.error.setting == "PERDURE_BLOCKS_PER_AGENT"

    async def test_of_two_blocks_attached_at_once_one_wins(self) -> None:
        """Two handles attach two blocks of one label to one agent: exactly one gets in, the other is told."""
        async with self.open_store() as one, self.open_store() as other:

            def attach(tx: Tx, agent_id: AgentId, block_id: BlockId) -> None:
                tx.blocks.attach(agent_id, block_id)

            for _ in range(5):
                agent_id = (await one.write(self.add_agent)).id
                ids = [(await one.write(self.add_block, "human")).id for _ in range(2)]
                outcomes = await asyncio.gather(
                    one.write(attach, agent_id, ids[0]), other.write(attach, agent_id, ids[1]), return_exceptions=True
                )

                assert [type(outcome) for outcome in outcomes if outcome is not None] == [AlreadyExists]
                assert len(await one.read(labels_of, agent_id)) == 1

    async def test_of_two_blocks_renamed_at_once_one_wins(self) -> None:
        """Two handles give two blocks of one agent the same label: exactly one gets it, the other is told."""
        async with self.open_store() as one, self.open_store() as other:

            def two_blocks(tx: Tx) -> tuple[AgentId, list[Block]]:
                agent = self.add_agent(tx)
                return agent.id, [self.add_block(tx, label, agent_id=agent.id) for label in ("a", "b")]

            def rename(tx: Tx, block: Block) -> Block:
                return tx.blocks.put(replace(block, label="same"), expected=0, author=ADA, at=AT)

            for _ in range(5):
                agent_id, blocks = await one.write(two_blocks)
                outcomes = await asyncio.gather(
                    one.write(rename, blocks[0]), other.write(rename, blocks[1]), return_exceptions=True
                )

                assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyExists", "Block"]
                assert (await one.read(labels_of, agent_id)).count("same") == 1

    async def test_renaming_cannot_double_a_label(self) -> None:
        """A block is not given a label that one of its agents has already, also not a shared block."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.add_agent, "ada"), await store.write(self.add_agent, "bob")
            await store.write(lambda tx: self.add_block(tx, "human", agent_id=ada.id))
            shared = await store.write(lambda tx: self.add_block(tx, "notes", agent_id=bob.id))
            await store.write(lambda tx: tx.blocks.attach(ada.id, shared.id))

            def rename(tx: Tx, label: str) -> Block:
                return tx.blocks.put(replace(shared, label=label), expected=0, author=ADA, at=AT)

            with raises(AlreadyExists):
                await store.write(rename, "human")
            renamed = await store.write(rename, "diary")

            assert await store.read(lambda tx: tx.blocks.find(bob.id, "diary")) == renamed
            assert await store.read(lambda tx: tx.blocks.find(bob.id, "notes")) is None
            assert [v.label for v in await store.read(lambda tx: tx.blocks.versions(shared.id))] == ["diary", "notes"]

    async def test_blocks_stand_in_the_order_they_were_attached(self) -> None:
        """Detaching closes the gap; attaching again puts a block last."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def fill(tx: Tx) -> list[Block]:
                return [self.add_block(tx, label, agent_id=agent.id) for label in ("zebra", "ant", "mouse")]

            blocks = await store.write(fill)
            assert await store.read(labels_of, agent.id) == ["zebra", "ant", "mouse"]
            await store.write(lambda tx: tx.blocks.detach(agent.id, blocks[0].id))
            assert await store.read(labels_of, agent.id) == ["ant", "mouse"]
            with raises(NotFound):
                await store.write(lambda tx: tx.blocks.detach(agent.id, blocks[0].id))
            await store.write(lambda tx: tx.blocks.attach(agent.id, blocks[0].id))
            assert await store.read(labels_of, agent.id) == ["ant", "mouse", "zebra"]

    async def test_a_deleted_block_is_gone_everywhere(self) -> None:
        """Its agents no longer have it, and its history is gone; other blocks stay."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            block = await store.write(lambda tx: self.add_block(tx, "human", agent_id=agent.id))
            other = await store.write(lambda tx: self.add_block(tx, "persona", agent_id=agent.id))
            await store.write(lambda tx: tx.blocks.delete(block.id))

            assert await store.read(lambda tx: tx.blocks.list_by_agent(agent.id)) == [other]
            assert await store.read(lambda tx: tx.blocks.page(where=BlockFilter())) == [other]
            look_ups: tuple[Callable[[Tx], Any], ...] = (
                lambda tx: tx.blocks.get(block.id),
                lambda tx: tx.blocks.versions(block.id),
                lambda tx: tx.blocks.version(block.id, 0),
            )
            for look_up in look_ups:
                with raises(NotFound):
                    await store.read(look_up)

    async def test_an_older_value_is_restored_as_a_new_version(self) -> None:
        """History goes on: nothing of it is lost."""
        async with self.open_store() as store:
            block = await store.write(self.add_block, "human", "first")
            await store.write(put_value, block, "second")
            restored = await store.write(lambda tx: restore_block(tx, block.id, 0, author=ADA, at=AT))

            values = [version.value for version in await store.read(lambda tx: tx.blocks.versions(block.id))]
            assert (restored.value, restored.version) == ("first", 2)
            assert values == ["first", "second", "first"]

    async def test_blocks_are_listed_oldest_first(self) -> None:
        """By label if asked, in pages that follow each other."""
        async with self.open_store() as store:
            for label in ("human", "persona", "human", "human"):
                await store.write(self.add_block, label)

            def pages(tx: Tx) -> tuple[list[str], list[int], list[int]]:
                every = [block.id for block in tx.blocks.page(where=BlockFilter(), ascending=True)]
                first = tx.blocks.page(where=BlockFilter(label="human"), ascending=True, limit=2)
                rest = tx.blocks.page(where=BlockFilter(label="human"), ascending=True, limit=2, after=first[-1].id)
                return (
                    [block.label for block in tx.blocks.page(where=BlockFilter(), ascending=True, limit=3)],
                    [every.index(block.id) for block in first],
                    [every.index(block.id) for block in rest],
                )

            assert await store.read(pages) == (["human", "persona", "human"], [0, 2], [3])

    async def test_pages_of_blocks_go_both_ways(self) -> None:
        """Forwards by `after` and backwards by `before`, each block is met once."""
        async with self.open_store() as store:
            made = [(await store.write(self.add_block, f"b{index}")).id for index in range(5)]

            def walk(tx: Tx, ascending: bool) -> list[list[BlockId]]:
                page = functools.partial(tx.blocks.page, where=BlockFilter(), ascending=ascending, limit=2)
                forwards, found = [], page()
                while found:
                    forwards += [block.id for block in found]
                    found = page(after=found[-1].id)
                backwards, found = [forwards[-1]], page(before=forwards[-1])
                while found:
                    backwards = [block.id for block in found] + backwards
                    found = page(before=found[0].id)
                between = page(after=forwards[0], before=forwards[-1])
                assert [block.id for block in between] == forwards[1:3]
                return [forwards, backwards]

            assert await store.read(walk, True) == [made, made]
            assert await store.read(walk, False) == [made[::-1]] * 2
            nothing = BlockId(self.ids.new("block"))
            with raises(NotFound):
                await store.read(lambda tx: tx.blocks.page(where=BlockFilter(), after=nothing))
            with raises(NotFound):
                await store.read(lambda tx: tx.blocks.page(where=BlockFilter(), before=nothing))

    async def test_blocks_are_filtered(self) -> None:
        """All conditions hold; texts are looked for as they are, whatever they mean to a database."""
        async with self.open_store() as store:
            agents = [await store.write(self.add_agent, name) for name in ("ada", "bob")]
            tea = await store.write(lambda tx: self.add_block(tx, "human", "Tea, 100% of it"))
            odd = await store.write(lambda tx: self.add_block(tx, "human", "co_ffee"))
            for edited in (
                replace(tea, tags=("a", "b"), is_template=True, metadata={"deep": {"name": 'the "tea"'}}),
                replace(odd, tags=("b",), description="What ELSE", hidden=True),
            ):
                await store.write(lambda tx, block: tx.blocks.put(block, expected=0, author=ADA, at=AT), edited)
            for agent in agents:
                await store.write(lambda tx, agent: tx.blocks.attach(agent.id, tea.id), agent)

            async def find(**conditions: Any) -> list[str]:
                where = BlockFilter(**conditions)
                blocks = await store.read(lambda tx: tx.blocks.page(where=where, ascending=True))
                assert await store.read(lambda tx: tx.blocks.count(where)) == len(blocks)
                return [{tea.id: "tea", odd.id: "odd"}[block.id] for block in blocks]

            assert await find() == ["tea", "odd"]
            assert await find(label="human") == ["tea", "odd"]
            assert await find(label="hum") == []
            assert await find(label_text="HUM") == ["tea", "odd"]
            assert await find(value_text="tEA, 100%") == ["tea"]
            assert await find(value_text="_") == ["odd"]
            assert await find(description_text="what else") == ["odd"]
            assert await find(tags=("a", "b")) == ["tea", "odd"]
            assert await find(tags=("a", "b"), all_tags=True) == ["tea"]
            assert await find(templates_only=True) == ["tea"]
            for_tea = ("deep", "name", 'the "tea"')
            assert await find(holding=(for_tea,)) == ["tea"]
            assert await find(holding=(for_tea, ("deep", "a", "b"))) == []
            for wrong in (("deep", "name", "the"), ("deep", "name", 'The "tea"'), ("name", "name", 'the "tea"')):
                assert await find(holding=(wrong,)) == []
            assert await find(hidden=False) == ["tea"]
            assert await find(agents_min=1) == await find(agents_in=(2, 7)) == ["tea"]
            assert await find(agents_max=1) == await find(agents_in=(0,)) == ["odd"]
            assert await find(agents_max=-1) == []

    async def test_unknown_blocks_and_agents_are_told(self) -> None:
        """Nothing is edited, attached or detached that is not there, nor added twice."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            block = await store.write(self.add_block)
            ghost = replace(block, id=BlockId(self.ids.new("block")))
            nobody = AgentId(self.ids.new("agent"))
            units: tuple[Callable[[Tx], Any], ...] = (
                lambda tx: tx.blocks.get(ghost.id),
                lambda tx: put_value(tx, ghost, "x"),
                lambda tx: tx.blocks.delete(ghost.id),
                lambda tx: tx.blocks.attach(agent.id, ghost.id),
                lambda tx: tx.blocks.attach(nobody, block.id),
                lambda tx: tx.blocks.detach(agent.id, block.id),
            )
            for unit in units:
                with raises(NotFound):
                    await store.write(unit)
            with raises(Conflict):
                await store.write(lambda tx: tx.blocks.add(block, author=ADA))

            assert await store.read(lambda tx: tx.blocks.list_by_agent(agent.id)) == []

    async def test_a_block_that_no_conversation_shows_any_more_is_deleted(self) -> None:
        """What takes its place deletes it, unless an agent has it too."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[AgentId, Block, Block]:
                agent, other = self.add_agent(tx), self.add_agent(tx)
                first, second = (self.add_block(tx, label, "own") for label in ("human", "mood"))
                tx.blocks.isolate(agent.id, 1, "human", first.id)
                tx.blocks.isolate(agent.id, 1, "mood", second.id)
                tx.blocks.isolate(agent.id, 1, "mood", second.id)
                tx.blocks.attach(other.id, second.id)
                return agent.id, first, second

            agent_id, first, second = await store.write(fill)
            for block in (first, second):
                assert await store.read(lambda tx, own: tx.blocks.get(own.id), block) == block
            await store.write(lambda tx: tx.blocks.isolate(agent_id, 1, "human", None))
            await store.write(lambda tx: tx.blocks.isolate(agent_id, 1, "mood", None))

            assert await store.read(
                lambda tx: [block.id for block in tx.blocks.page(where=BlockFilter(), ascending=True)]
            ) == [second.id]
            assert await store.read(lambda tx: tx.blocks.list_isolated(agent_id, 1)) == {"human": None, "mood": None}

    async def test_a_conversation_shows_its_own_in_place_of_the_agents(self) -> None:
        """In the place of the agent's block; no label twice, by whatever name; without a block the label is gone."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[AgentId, Block]:
                agent = self.add_agent(tx)
                for label in ("persona", "human", "mood"):
                    self.add_block(tx, label, "agent", agent_id=agent.id)
                own = self.add_block(tx, "human", "own, longer")
                tx.blocks.isolate(agent.id, 1, "human", own.id)
                tx.blocks.isolate(agent.id, 1, "mood", None)
                return agent.id, own

            agent_id, own = await store.write(fill)

            def values(tx: Tx, seq: int) -> dict[str, str]:
                shown = tx.blocks.list_by_agent(agent_id, seq)
                versions = tx.blocks.list_versions(agent_id, seq)
                assert list(versions.items()) == [(block.id, block.version) for block in shown]
                blocks = {block.label: block.value for block in shown}
                assert {label: found.value for label in blocks if (found := tx.blocks.find(agent_id, label, seq))} == (
                    blocks
                )
                assert tx.blocks.size(agent_id, seq) == sum(map(len, blocks.values()))
                return blocks

            agents = {"persona": "agent", "human": "agent", "mood": "agent"}
            assert await store.read(values, 0) == await store.read(values, 2) == agents
            assert list((await store.read(values, 1)).items()) == [("persona", "agent"), ("human", "own, longer")]
            assert await store.read(lambda tx: tx.blocks.find(agent_id, "mood", 1)) is None
            assert await store.read(lambda tx: tx.blocks.list_isolated(agent_id, 1)) == {"human": own.id, "mood": None}
            with raises(NotFound):
                await store.write(lambda tx: tx.blocks.isolate(agent_id, 1, "human", BlockId("block-none")))

            def rename(tx: Tx, label: str) -> Block:
                return tx.blocks.put(replace(own, label=label), expected=own.version, author=ADA, at=AT)

            with raises(AlreadyExists):
                await store.write(rename, "persona")
            await store.write(rename, "who")
            assert await store.read(values, 1) == {"persona": "agent", "who": "own, longer"}

            def attach(tx: Tx) -> None:
                self.add_block(tx, "who", "agent", agent_id=agent_id)

            await store.write(attach)
            assert await store.read(values, 1) == {"persona": "agent", "who": "own, longer"}
            await store.write(lambda tx: tx.blocks.delete_isolated(agent_id, 1))
            assert await store.read(values, 1) == await store.read(values, 0) == {**agents, "who": "agent"}
            with raises(NotFound):
                await store.read(lambda tx: tx.blocks.get(own.id))
