"""What is deleted: gone for everybody at once, and removed a few rows at a time."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args
from unittest.mock import patch

from perdure.core.agents import AgentFilter, AgentOrder
from perdure.core.blocks import BlockFilter
from perdure.core.errors import LeaseLost, NotFound
from perdure.core.ids import AgentId
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.folder_tables import Folders
from perdure.storage.store import Store
from perdure.storage.tables import deleted
from perdure.storage.tx import Tx
from tests.contracts.base import LATER, Contract, raises
from tests.contracts.isolation import OTHER_ORG, calls_of, each_undone, outcome_of, signature_of, table_of
from tests.contracts.organisations import Property, fill

TELLS = {("upkeep", "carry_out_deletes"), ("upkeep", "unfinished_deletes")}
"""The verbs that see a difference."""


def without_revisions(value: Any) -> Any:
    """An outcome without the settings revisions in it, which grow with each step of removing a tool or folder."""
    if isinstance(value, dict):
        return {key: without_revisions(one) for key, one in value.items() if key != "settings_revision"}
    return [without_revisions(one) for one in value] if isinstance(value, list) else value


class DeleteContract(Contract):
    steps_between_looks = 8
    """How many rows are removed before all verbs are called again."""

    async def test_a_deleted_agent_is_gone_from_the_first_step_on(self) -> None:
        """Every verb of the store gives or raises what it will at last, whichever step of one row was the last."""
        async with self.open_store() as store:
            await store.write(self.add_agent)
            own = await store.write(lambda tx: fill(self, tx))

            first, steps = await self.carry_out(store, own, lambda tx: tx.agents.delete(own.agent.id))

            assert steps > 16
            assert {outcome for name, outcome in first.items() if name.startswith("agents.get(")} == {"NotFound"}

    async def carry_out(self, store: Store, own: Property, unit: Callable[[Tx], None]) -> tuple[dict[str, Any], int]:
        """Delete something, and remove it row by row: the outcome of every verb after the delete, which stays the same
        until nothing is left, and the number of steps."""
        calls = [call for call in calls_of(own, own) if "=them" not in call.name and " of them" not in call.name]
        calls = [call for call in calls if (call.noun, call.verb) not in TELLS]

        def outcome(tx: Tx, call: Any) -> Any:
            verb = getattr(table_of(tx, call.noun), call.verb)
            bound = inspect.BoundArguments(signature_of(verb), dict(call.arguments))
            return without_revisions(outcome_of(lambda: verb(*bound.args, **bound.kwargs)))

        async def outcomes() -> dict[str, Any]:
            units = [functools.partial(outcome, call=call) for call in calls]
            return dict(zip((call.name for call in calls), await each_undone(store, units), strict=True))

        with patch.object(deleted, "ROWS_AT_ONCE", 0):
            await store.write(unit)
            first, steps = await outcomes(), 0
            while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=1, chars=1)):
                steps += 1
                if steps % self.steps_between_looks == 0:
                    now = await outcomes()
                    assert {name: (first[name], now[name]) for name in first if first[name] != now[name]} == {}
            last = await outcomes()
        assert {name: (first[name], last[name]) for name in first if first[name] != last[name]} == {}
        return first, steps

    async def test_a_deleted_block_is_gone_from_the_first_step_on(self) -> None:
        """Also for its agents, whose label is free; its versions and places go behind it."""
        async with self.open_store() as store:
            own = await store.write(lambda tx: fill(self, tx))
            first, steps = await self.carry_out(store, own, lambda tx: tx.blocks.delete(own.block.id))
            assert steps >= 2
            assert [one["label"] for one in first["blocks.list_by_agent(agent_id=us)"]] == ["persona"]

    async def test_a_deleted_tool_is_gone_from_the_first_step_on(self) -> None:
        """Its name is free; each of its agents has another settings revision once its place is removed."""
        async with self.open_store() as store:
            own = await store.write(lambda tx: fill(self, tx))
            before = (await store.read(lambda tx: tx.agents.get(own.agent.id))).settings_revision
            first, steps = await self.carry_out(store, own, lambda tx: tx.tools.delete(own.tool.id))
            assert steps >= 2
            assert first["tools.list_by_agent(agent_id=us)"] == []
            assert (await store.read(lambda tx: tx.agents.get(own.agent.id))).settings_revision == before + 1

    async def test_a_deleted_folder_is_gone_from_the_first_step_on(self) -> None:
        """And with it its archive."""
        async with self.open_store() as store:
            own = await store.write(lambda tx: fill(self, tx))

            def delete_files(tx: Tx) -> None:
                for file in tx.of(Files).list(own.folder.id):
                    tx.of(Files).delete(file.id)
                while (deleted_file := tx.of(Files).claim(owner="me", at=LATER, until=LATER)) is not None:
                    tx.of(Files).drop_views(deleted_file.id, limit=100)
                    tx.of(Files).purge(deleted_file)
                archive_id = own.folder.archive_id
                tx.passages.delete(archive_id, [one.seq for one in tx.passages.page(archive_id)])

            await store.write(delete_files)
            first, steps = await self.carry_out(store, own, lambda tx: tx.of(Folders).delete(own.folder.id))
            assert steps >= 3
            assert first["folders.list_by_agent(agent_id=us)"] == []

    async def test_a_deleted_archive_is_gone_from_the_first_step_on(self) -> None:
        """Its vectors go in steps too."""
        async with self.open_store() as store:
            own = await store.write(lambda tx: fill(self, tx))

            def delete_passages(tx: Tx) -> None:
                tx.passages.delete(own.archive.id, [one.seq for one in tx.passages.page(own.archive.id)])

            await store.write(delete_passages)
            first, steps = await self.carry_out(store, own, lambda tx: tx.archives.delete(own.archive.id))
            assert steps >= 2
            assert first["archives.list_by_agent(agent_id=us)"] == []

    async def test_views_of_a_deleted_file_are_removed_behind_it(self) -> None:
        """Nobody has it open any more when it is deleted; so many views as are asked for go at once."""
        async with self.open_store() as store:
            own = await store.write(lambda tx: fill(self, tx))
            await store.write(lambda tx: tx.of(Files).delete(own.file.id))

            assert await store.read(lambda tx: tx.of(AgentFiles).list_open(own.agent.id)) == []
            assert own.file.id not in await store.read(lambda tx: tx.of(AgentFiles).list_versions(own.agent.id))
            assert not await store.write(lambda tx: tx.of(AgentFiles).close(own.agent.id, own.file.id))
            assert await store.write(lambda tx: tx.of(Files).drop_views(own.file.id, limit=5)) == 1
            assert await store.write(lambda tx: tx.of(Files).drop_views(own.file.id, limit=5)) == 0

    async def test_a_run_of_a_deleted_agent_is_held_by_nobody(self) -> None:
        """Who drives it learns that it is gone, and nobody takes it over; deleting twice is told."""
        async with self.open_store() as store:
            own = await store.write(lambda tx: fill(self, tx))
            await store.write(lambda tx: tx.agents.delete(own.agent.id))

            with raises(LeaseLost):
                await store.write(lambda tx: tx.runs.keep_lease(own.run, until=LATER))
            assert await store.write(lambda tx: tx.runs.claim(own.run.key, owner="x", at=LATER, until=LATER)) is None
            with raises(NotFound):
                await store.write(lambda tx: tx.agents.delete(own.agent.id))

    async def test_what_is_said_after_a_delete_is_refused(self) -> None:
        """Also by what was read before it."""
        async with self.open_store() as store:
            own = await store.write(lambda tx: fill(self, tx))
            await store.write(lambda tx: tx.agents.delete(own.agent.id))
            with contextlib.suppress(NotFound):
                await store.write(self.say, own.agent.id, "hello")
                raise AssertionError("a message was taken for an agent that is deleted")
            assert await store.read(lambda tx: tx.upkeep.unfinished_deletes())
            while await store.write(lambda tx: tx.upkeep.carry_out_deletes()):
                pass
            assert not await store.read(lambda tx: tx.upkeep.unfinished_deletes())
            with raises(NotFound):
                await store.read(lambda tx: tx.messages.get(own.message.id))

    async def test_pages_go_on_behind_what_was_deleted(self) -> None:
        """In every order of agents but those of names and of messages, which are not kept, and of blocks; what another
        organisation deleted is no place of ours."""
        async with self.open_store() as store, self.open_store(org_id=OTHER_ORG) as other:

            def make(tx: Tx) -> tuple[list[Any], list[Any]]:
                agents = [self.add_agent(tx, name) for name in "abc"]
                return agents, [self.add_block(tx, name) for name in "abc"]

            agents, blocks = await store.write(make)
            await store.write(lambda tx: tx.agents.delete(agents[1].id))
            await store.write(lambda tx: tx.blocks.delete(blocks[1].id))
            while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=100)):
                pass

            def names(tx: Tx) -> list[list[str]]:
                found = [
                    tx.agents.page(where=AgentFilter(), order=order, ascending=True, after=agents[1].id)
                    for order in get_args(AgentOrder)
                    if order not in ("name", "messages")
                ]
                before = tx.agents.page(where=AgentFilter(), ascending=True, before=agents[1].id)
                left = tx.blocks.page(where=BlockFilter(), ascending=True, after=blocks[1].id)
                return [*([one.name for one in page] for page in (*found, before)), [one.label for one in left]]

            assert await store.read(names) == [["c"], ["c"], ["c"], ["a"], ["c"]]
            with raises(NotFound):
                await other.read(lambda tx: tx.agents.page(where=AgentFilter(), after=agents[1].id))

    async def test_several_are_read_by_their_ids_and_deleted_ones_keep_their_place(self) -> None:
        """Passages and files say in which archive or folder they stood, and where; unknown ids are left out."""
        async with self.open_store() as store:

            def check(tx: Tx) -> None:
                agent, archive, folder = self.add_agent(tx, "ada"), self.add_archive(tx), self.add_folder(tx)
                unknown = AgentId(self.ids.new("agent"))
                assert [*tx.agents.list_by_ids([agent.id, unknown])] == [agent.id]
                assert [*tx.archives.list_by_ids([archive.id])] == [archive.id]
                passage, file = self.add_passage(tx, archive.id, "tea"), self.add_file(tx, folder.id)
                places = tx.passages.place(passage.id), tx.of(Files).place(file.id)
                assert [places[0][0], places[1]] == [archive.id, (folder.id, tx.of(Files).number(file.id))]
                tx.passages.delete(archive.id, [passage.seq])
                tx.of(Files).delete(file.id)
                assert (tx.passages.place(passage.id), tx.of(Files).place(file.id)) == places
                empty = self.add_folder(tx, "empty")
                tx.archives.delete(archive.id)
                tx.of(Folders).delete(empty.id)
                numbers = tx.archives.number(archive.id), tx.of(Folders).number(empty.id)
                assert numbers == (archive.number, empty.number)

            await store.write(check)
