"""Files of agents: a second plan is empty, what agents learned stays, and what is removed comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.features.manifests.values import Plan
from tests.features.manifests.office_files import OFFICE, RAN, write_office
from tests.support.library import open_async
from tests.support.stores import new_address


def said(plan: Plan) -> list[str]:
    """The changes of a plan in words."""
    return [f"{one.action} {one.kind}/{one.name}" for one in plan.changes]


def paths(plan: Plan) -> list[str]:
    """The fields that a plan changes."""
    return [f"{one.name}.{field.path}" for one in plan.changes for field in one.fields]


async def labels(library: AsyncPerdure, name: str) -> dict[str, str]:
    """Label -> value of the blocks of an agent."""
    return {block.label: block.value for block in await (await library.agent(name)).blocks.list()}


@pytest.mark.parametrize("postgres", [False, True])
async def test_every_kind_is_applied_and_the_second_plan_is_empty(tmp_path: Path, postgres: bool) -> None:
    """A plan stores nothing and runs nothing; what it says is done; then there is nothing to do."""
    file, address = write_office(tmp_path), new_address(tmp_path, postgres=postgres)
    async with await open_async(address) as library:  # type: ignore[arg-type]
        plan = await library.manifests.plan(file)
        nothing = await library.agents()
        done = await library.manifests.apply(file, plan=plan)
        again = await library.manifests.plan(file)
        ada = await library.agent("ada")
        blocks = await labels(library, "ada")
        shared = await (await library.agent("bob")).blocks.get("rules")
        tools = [tool.name for tool in await ada.tools.list()]
        archives = [one.name for one in await ada.archives.list()]
        group = next(one for one in await library.groups.list() if one.kind == "supervisor")
        schedules = await ada.schedules.list()

        assert nothing == []
        assert said(done) == said(plan)
        assert len(plan.changes) == plan.total == 10 and {one.action for one in plan.changes} == {"create"}
        assert again.changes == [] and again.left == [] and again.noted == 0
        assert blocks == {"persona": "I am Ada.", "notes": "Nothing yet.", "rules": "Be kind.\nBe brief.\n"}
        assert shared.value == blocks["rules"]
        assert "roll_dice" in tools and "archival_memory_insert" in tools
        assert archives == ["library"]
        assert (group.info.kind, group.info.max_turns) == ("supervisor", 3)
        assert [one.name for one in schedules] == ["morning"]
        assert not RAN.exists()


@pytest.mark.parametrize("value", ["", " ~", " {}"])
async def test_a_name_alone_is_a_thing_with_defaults(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.yaml").write_text(f"agents:\n  ada:{value}\nblocks:\n  notes:{value}\ngroups:\n")
    async with await open_async(tmp_path / "store.db") as library:
        done = await library.manifests.apply(tmp_path / "a.yaml")

        assert said(done) == ["create blocks/notes", "create agents/ada"]
        assert {"persona", "human"} <= (await labels(library, "ada")).keys()


async def test_what_an_agent_learned_stays_unless_the_file_enforces_it(tmp_path: Path) -> None:
    """A `seed` is of new blocks only; a `value` is brought back, and the plan says that it was changed here."""
    file = write_office(tmp_path)
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply(file)
        ada = await library.agent("ada")
        await ada.blocks.update("notes", "Likes tea.")
        await ada.blocks.create("own", "Mine.")
        quiet = await library.manifests.plan(file)
        await ada.blocks.update("persona", "I am someone else.")
        drift = await library.manifests.plan(file)
        await library.manifests.apply(file)
        after = await labels(library, "ada")

        assert quiet.changes == []
        assert paths(drift) == ["ada.blocks.persona.value"] and drift.changes[0].fields[0].drifted
        assert after["persona"] == "I am Ada."
        assert (after["notes"], after["own"]) == ("Likes tea.", "Mine.")
        assert (await library.manifests.plan(file)).changes == []


async def test_what_the_files_lack_is_removed_by_prune_only_and_comes_back(tmp_path: Path) -> None:
    """Without `prune` all stays, and is named; with it, it leaves; a file that has it again brings the same back."""
    file = write_office(tmp_path)
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply(file)
        before = (await library.agent("cleo")).id
        start = OFFICE.index("  cleo:\n")
        write_office(tmp_path, OFFICE[:start] + OFFICE[OFFICE.index("schedules:") :])
        kept = await library.manifests.apply(file)
        pruned = await library.manifests.apply(file, prune=True)
        hidden = (await library.agent_of(before).state()).agent.hidden
        again = await library.manifests.plan(file, prune=True)
        write_office(tmp_path)
        back = await library.manifests.apply(file)
        restored = await library.agent("cleo")

        assert kept.changes == [] and kept.left == [("groups", "council"), ("agents", "cleo")]
        assert said(pruned) == ["remove groups/council", "remove agents/cleo"]
        assert again.changes == [] and hidden
        assert said(back) == ["restore agents/cleo", "restore groups/council"]
        assert restored.id == before
        assert (await library.manifests.plan(file)).changes == []


async def test_an_agent_is_shown_as_a_file_that_changes_nothing_here_and_makes_it_elsewhere(tmp_path: Path) -> None:
    """What `show` writes is applied with an empty plan, and in another store it makes such an agent."""
    file = write_office(tmp_path)
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply(file)
        ada = await library.agent("ada")
        text = await library.manifests.show(ada.id)
        here = await library.manifests.plan({"ada.yaml": text})
        tools = [tool.name for tool in await ada.tools.list()]
        blocks = await labels(library, "ada")
    async with await open_async(tmp_path / "other.db") as other:
        await other.manifests.apply({"ada.yaml": text})
        elsewhere = await other.manifests.show((await other.agent("ada")).id)

        assert here.changes == []
        assert [tool.name for tool in await (await other.agent("ada")).tools.list()] == tools
        assert await labels(other, "ada") == blocks
        assert (await other.manifests.plan({"ada.yaml": elsewhere})).changes == []
