"""Skills: each comes back as it was with its versions; what nobody used is archived; runs count as uses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.runs import Run, Usage
from perdure.core.sources import Source
from perdure.features.skills.tables import Skills
from perdure.features.skills.values import Skill, SkillVersion
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, UNTIL, Contract, raises


def new_skill(agent_id: AgentId, **fields: Any) -> Skill:
    """A skill, not added yet."""
    values: dict[str, Any] = {"name": "walrus", "layer": "L3", "description": "of a walrus", "text": "a walrus"}
    return Skill(**{"agent_id": agent_id, **values, "fresh_at": AT, "created_at": AT, "changed_at": AT, **fields})


def new_version(number: int = 1, **fields: Any) -> SkillVersion:
    """A version of a skill, not added yet."""
    values: dict[str, Any] = {"description": "of a walrus", "text": "a walrus", "written_by": "agent"}
    return SkillVersion(**{"version": number, **values, "evidence": "tool", "created_at": AT, **fields})


class SkillContract(Contract):
    async def test_a_skill_comes_back_as_it_was(self) -> None:
        """With every field, also text that databases can't hold as it is; its versions, the newest first."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            new = new_skill(agent.id, text="x\x00y\ud800", description="a\x1b", is_protected=True, archived_at=LATER)
            first = new_version(
                text="x\x00", run_id=RunId("run-1"), evidence_id=MessageId("m"), sources=(Source("web", "https://a"),)
            )
            skill = await store.write(lambda tx: tx.of(Skills).add(new, first))
            changed = replace(skill, text="other", version=2, archived_at=None, changed_at=UNTIL)

            def change(tx: Tx) -> None:
                tx.of(Skills).add_version(changed, new_version(2, evidence="person"))
                tx.of(Skills).put(changed)

            await store.write(change)

            assert skill == replace(new, seq=1)
            assert await store.read(lambda tx: tx.of(Skills).find(agent.id, "walrus")) == changed
            assert await store.read(lambda tx: tx.of(Skills).find(agent.id, "seal")) is None
            versions = await store.read(lambda tx: tx.of(Skills).versions(skill))
            assert versions == [new_version(2, evidence="person"), first]
            assert await store.read(lambda tx: tx.of(Skills).version(skill, 1)) == first
            with raises(NotFound):
                await store.read(lambda tx: tx.of(Skills).version(skill, 3))
            with raises(NotFound):
                await store.write(lambda tx: tx.of(Skills).put(replace(skill, seq=9)))

    async def test_lists_of_skills(self) -> None:
        """By name, archived or not; the index has the newest first; those of another agent are not in them."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent) for _ in range(2)]
            new = [new_skill(agent.id, name=name) for name in ("c", "a", "b")]
            new += [new_skill(agent.id, name="d", layer="L2"), new_skill(other.id)]
            await store.write(lambda tx: [tx.of(Skills).add(one, new_version()) for one in new])
            skill = await store.read(lambda tx: tx.of(Skills).find(agent.id, "a"))
            assert skill is not None
            await store.write(lambda tx: tx.of(Skills).put(replace(skill, archived_at=LATER)))

            def names(tx: Tx, archived: bool | None) -> list[str]:
                return [one.name for one in tx.of(Skills).list(agent.id, archived=archived)]

            assert [await store.read(names, one) for one in (False, True, None)] == [
                ["b", "c", "d"],
                ["a"],
                ["a", "b", "c", "d"],
            ]
            index = await store.read(lambda tx: tx.of(Skills).index(agent.id))
            assert [(seq, name, layer) for seq, name, layer, _ in index] == [
                (4, "d", "L2"),
                (3, "b", "L3"),
                (1, "c", "L3"),
            ]

    async def test_what_nobody_used_is_archived(self) -> None:
        """If it is not protected; a use makes a skill fresh."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            new = [new_skill(agent.id, name="old"), new_skill(agent.id, name="used")]
            new += [new_skill(agent.id, name="kept", is_protected=True)]
            await store.write(lambda tx: [tx.of(Skills).add(one, new_version()) for one in new])
            await store.write(lambda tx: tx.of(Skills).add_use(agent.id, "used", 0, at=LATER))
            await store.write(lambda tx: tx.of(Skills).archive_unused(agent.id, before=UNTIL, at=LATER))

            left = await store.read(lambda tx: tx.of(Skills).list(agent.id))
            assert [one.name for one in left] == ["kept", "used"]
            (old,) = await store.read(lambda tx: tx.of(Skills).list(agent.id, archived=True))
            assert (old.name, old.archived_at) == ("old", LATER)

    async def test_runs_are_uses(self) -> None:
        """Each once, however often it reads a skill; those that came to their end are successes."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            done, going = await store.write(lambda tx: (self.add_run(tx, agent.id), self.add_run(tx, agent.id)))
            await store.write(
                lambda tx: tx.runs.end(done, reason="end_turn", usage=Usage(), step_count=1, failure=None, at=LATER)
            )
            for run in (done, done, going):
                await store.write(_use, run)
            await store.write(lambda tx: tx.of(Skills).add_use(agent.id, "seal", going.key.seq, at=UNTIL))

            uses = await store.read(lambda tx: tx.of(Skills).uses(agent.id))
            assert {name: (one.uses, one.successes, one.last_at) for name, one in uses.items()} == {
                "seal": (1, 0, UNTIL),
                "walrus": (2, 1, LATER),
            }

    async def test_skills_that_are_added_at_once_have_numbers_of_their_own(self) -> None:
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            names = [f"s{number}" for number in range(8)]
            new = [new_skill(agent.id, name=name) for name in names]
            await asyncio.gather(*(store.write(_add, one) for one in new))

            found = await store.read(lambda tx: tx.of(Skills).list(agent.id))
            assert [one.name for one in found] == names
            assert sorted(one.seq for one in found) == list(range(1, 9))


def _use(tx: Tx, run: Run) -> None:
    """Note that a run used a skill."""
    tx.of(Skills).add_use(run.key.agent_id, "walrus", run.key.seq, at=LATER)


def _add(tx: Tx, skill: Skill) -> None:
    """Add a skill."""
    tx.of(Skills).add(skill, new_version())
