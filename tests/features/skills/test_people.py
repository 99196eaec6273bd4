"""What people do with skills: write, protect, archive, restore; and the archive of those that nobody used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.errors import BlockReadOnly, InvalidInput, NotFound
from perdure.features.skills.admission import AdmissionRefused, constitution, layers, rules
from perdure.features.skills.values import UNUSED_FOR
from perdure.settings import Settings
from perdure.testing import FakeClock, InlineStore, ScriptedModel, calls, says
from tests.support.library import MODEL

KEY = "sk-proj-abcdefghij0123456789"


@asynccontextmanager
async def opened(*script: Any) -> AsyncIterator[tuple[AsyncAgent, ScriptedModel, FakeClock]]:
    """An agent that learns, its model and the clock."""
    model, clock = ScriptedModel(*script), FakeClock()
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, clock=clock, settings=settings
    ) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        yield agent, model, clock


async def test_a_person_writes_and_brings_an_older_version_back() -> None:
    async with opened() as (agent, _, _):
        await agent.skills.write("bake", "Flour.", description="Bake bread")
        await agent.skills.write("bake", "Flour and water.")
        same = await agent.skills.write("bake", "Flour and water.")
        back = await agent.skills.restore("bake", version=1)
        versions = await agent.skills.versions("bake")
        await agent.skills.archive("bake")
        again = await agent.skills.write("bake", "Flour.")

        assert (again.version, again.archived_at) == (3, None), "written again as it was, it leaves the archive"
        assert (same.version, back.version, back.text, back.description) == (2, 3, "Flour.", "Bake bread")
        assert [(one.version, one.text, one.evidence) for one in versions] == [
            (3, "Flour.", "person"),
            (2, "Flour and water.", "person"),
            (1, "Flour.", "person"),
        ]
        with pytest.raises(NotFound, match="version"):
            await agent.skills.restore("bake", version=9)


async def test_a_whole_file_of_a_skill_is_written_as_its_text_and_description() -> None:
    """What is given beside it comes first; two lines of dashes alone are a part of the text."""
    async with opened() as (agent, _, _):
        file = "---\nname: bake\ndescription: Bake bread\n---\n\n# Flour\n"
        plain = await agent.skills.write("bake", file)
        given = await agent.skills.write("cake", file, description="Bake cake")
        ruled = await agent.skills.write("rules", "---\nFlour\n---\nWater")

    assert [(one.description, one.text) for one in (plain, given, ruled)] == [
        ("Bake bread", "# Flour"),
        ("Bake cake", "# Flour"),
        ("Flour", "---\nFlour\n---\nWater"),
    ]


async def test_some_rules_hold_for_people_too() -> None:
    """No credential, no tool's name, no layer that Perdure makes; a time is theirs to write."""
    async with opened() as (agent, _, _):
        for rule, name, text, layer in (
            ("no_credential", "a", f"The key is {KEY}", "L3"),
            ("named", "search_skills", "x", "L3"),
            ("a_persons_layer", "a", "x", "L0"),
            ("made_by_perdure", "a", "x", "L4"),
            ("sized", "a", "  ", "L3"),
        ):
            with pytest.raises(AdmissionRefused, match=f"by the rule '{rule}'"):
                await agent.skills.write(name, text, layer=layer)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="layer is 'L9'"):
            await agent.skills.write("a", "x", layer="L9")  # type: ignore[arg-type]

        assert (await agent.skills.write("a", "It began at 2026-11-29T07:10:00.")).version == 1
        assert len([one for one in await agent.skills.list(archived=None) if one.version]) == 1


async def test_an_agent_changes_no_protected_skill() -> None:
    update = {"layer": "L3", "name": "bake", "text": "Sugar.", "evidence": "user"}
    async with opened(
        calls("start_long_term_update", **update), says("no"), calls("start_long_term_update", **update), says("ok")
    ) as (agent, model, _):
        await agent.skills.write("bake", "Flour.")
        await agent.skills.protect("bake")
        await agent.send("Use sugar.")
        refused = (await agent.skills.get("bake")).text
        await agent.skills.protect("bake", protected=False)
        await agent.send("Use sugar.")

        assert "refused by the rule 'protected'" in model.requests[1].messages[-1].text
        assert (refused, (await agent.skills.get("bake")).text) == ("Flour.", "Sugar.")


async def test_unused_skills_go_to_the_archive_and_come_back() -> None:
    """Nothing is deleted: a search finds it, and so does one who reads it; a protected one stays."""
    async with opened(
        calls("read_skill", name="used"),
        says("ok"),
        calls("read_skill", name="used"),
        says("ok"),
        calls("read_skill", name="old"),
        says("ok"),
    ) as (agent, model, clock):
        for name in ("old", "used", "kept"):
            await agent.skills.write(name, f"How to use the {name} oven.")
        await agent.skills.protect("kept")
        clock.advance(UNUSED_FOR.total_seconds() - 60)
        await agent.send("go")
        clock.advance(timedelta(minutes=2).total_seconds())
        await agent.send("go on")
        await agent.send("and the old one")
        own = [one.name for one in await agent.skills.list() if one.version]

        assert own == ["kept", "used"]
        assert "archived: check that it still holds" in model.requests[5].messages[-1].text
        assert {one.name for one in await agent.skills.search("oven")} == {"kept", "old", "used"}
        assert [one.name for one in await agent.skills.list(archived=True)] == ["old"]
        assert (await agent.skills.restore("old")).archived_at is None
        clock.advance(60)
        assert [one.name for one in await agent.skills.list(archived=True)] == []


async def test_the_constitution_is_a_block_that_no_agent_changes() -> None:
    """It says each layer and rule; its author is whoever gave the agent skills."""
    append = calls("memory_insert", label="constitution", new_string="Anything goes.")
    async with opened(append, says("ok")) as (agent, model, _):
        await agent.send("Change the rules.")
        block = await agent.blocks.get("constitution")

        assert block.read_only and block.value == constitution()
        assert str(BlockReadOnly("constitution")) in model.requests[1].messages[-1].text
        assert all(f"- {rule.name} (" in block.value for rule in rules())
        assert all(f"- {key} {use.name}:" in block.value for key, use in layers().items())


async def test_names_that_are_not_there_are_not_found() -> None:
    async with opened() as (agent, _, _):
        await agent.skills.write("bake", "Flour.")
        for call in (
            agent.skills.get("bak"),
            agent.skills.versions("bak"),
            agent.skills.archive("bak"),
            agent.skills.restore("bak"),
            agent.skills.protect("working-alone"),
        ):
            with pytest.raises(NotFound):
                await call


@pytest.mark.uses("proposals")
async def test_a_protected_skill_changes_by_a_proposal_that_a_person_approves() -> None:
    """As a version by that person; no credential stands in a proposal."""
    async with opened() as (agent, _, _):
        await agent.tools.attach("propose_change")
        await agent.skills.write("bake", "Flour and salt.")
        await agent.skills.protect("bake")
        why = {"label": "bake", "reason": "It was too salty.", "evidence": "the user said so"}
        await agent.tools.run("propose_change", {**why, "old": "salt", "new": "sugar"})
        await agent.tools.run("propose_change", {**why, "new_value": "The oven's password is hunter2-4711."})
        refused = [
            (await agent.tools.run("propose_change", {**why, "new_value": text})).text
            for text in (" ", "Kill 4123 and bake, PID 4123.", "x" * 30_001)
        ]
        before = (await agent.skills.get("bake")).text
        approved = await agent.proposals.approve(1)
        newest = (await agent.skills.versions("bake"))[0]

        assert (before, (await agent.skills.get("bake")).text) == ("Flour and salt.", "Flour and sugar.")
        assert (approved.kind, approved.version, newest.version, newest.evidence) == ("skill", 2, 2, "person")
        assert "-Flour and salt." in approved.diff
        assert (await agent.skills.get("bake")).is_protected
        assert "hunter2" not in (await agent.proposals.get(2)).new_value
        rules = ("refused by the rule 'sized'", "refused by the rule 'lasting'", "its limit is 30,000")
        assert all(rule in text for rule, text in zip(rules, refused, strict=True)), refused
        assert len(await agent.proposals.list(state=None)) == 2


async def test_an_unknown_name_is_told_to_the_model_and_a_hostile_text_is_read_at_once() -> None:
    """A pattern that takes for ever would hold the store's writer."""
    script = (calls("read_skill", name="bak"), calls("read_skill", name="bake"), says("Done."))
    async with opened(*script) as (agent, model, _):
        await agent.skills.write("bake", f"Flour.\n~~~{'-' * 5_000}\n~~~ python oven/heat-up.py\nprint(1)\n~~~\n")
        reply = await agent.send("Bake.")

        assert reply.text == "Done."
        assert "'bak' not found" in model.requests[1].messages[-1].text
        assert "oven/heat-up.py" in model.requests[2].messages[-1].text
