"""An agent keeps what worked: found and used in another conversation; what nothing confirmed is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.features.skills.admission import AdmissionRefused
from perdure.library.parts.part import find_message
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import open_async

STEPS = "# Deploy the shop\n1. Run `make build`.\n2. Copy `dist` to the server.\n3. The page answers with 200."


def deploy() -> str:
    """Deploy the shop."""
    return "deployed, the page answers with 200"


def broken() -> str:
    """Fail."""
    raise ValueError("no such server")


def keep(**changes: Any) -> Any:
    """A call that keeps the steps."""
    values = {"layer": "L3", "name": "deploy-shop", "text": STEPS, "evidence": "deploy"}
    return calls("start_long_term_update", **values | changes)


async def learner(path: Path, *script: Any) -> tuple[AsyncPerdure, ScriptedModel, Any]:
    """A store with an agent that learns, and its model."""
    model = ScriptedModel(*script)
    perdure = await open_async(path / "perdure.db", model=model, tools=[deploy, broken])
    agent = await perdure.create_agent("ann", tools=["deploy", "broken", "memory_insert"])
    await agent.skills.enable()
    return perdure, model, agent


async def test_a_skill_of_one_conversation_is_found_and_used_in_another(tmp_path: Path) -> None:
    """The index, the search and the text reach a conversation that never saw it; the use is counted as a success."""
    perdure, model, agent = await learner(
        tmp_path,
        calls("deploy"),
        keep(description="Deploy the shop to its server"),
        says("Kept."),
        calls("search_skills", query="how do I deploy"),
        calls("read_skill", name="deploy-shop"),
        says("I know how."),
    )
    async with perdure:
        await agent.send("Deploy the shop.")
        other = await agent.new_conversation()
        await agent.send("Deploy it again.", conversation=other.id)

        found, read = (request.messages[-1].text for request in model.requests[4:6])
        assert '"name": "deploy-shop", "description": "Deploy the shop to its server"' in model.requests[3].system
        assert json.loads(found)["name"] == "deploy-shop"
        assert STEPS in read
        (skill,) = [one for one in await agent.skills.list() if one.version]
        assert (skill.name, skill.layer, skill.uses.uses, skill.uses.successes) == ("deploy-shop", "L3", 1, 1)


async def test_the_confirmation_is_linked(tmp_path: Path) -> None:
    """A version has the message with the tool's result, or the user's message, that confirmed it."""
    perdure, _, agent = await learner(
        tmp_path,
        calls("deploy"),
        keep(),
        says("Kept."),
        keep(text=f"{STEPS}\n4. Tell the user afterwards.", evidence="user"),
        says("ok"),
    )
    async with perdure:
        await agent.send("Deploy the shop.")
        await agent.send("And tell the user afterwards.")
        second, first = await agent.skills.versions("deploy-shop")
        result, asked = [await perdure.app.store.read(find_message, one.evidence_id) for one in (first, second)]

        assert (first.evidence, second.evidence, first.version, second.version) == ("tool", "user", 1, 2)
        assert "answers with 200" in result.text and asked.text == "And tell the user afterwards."
        assert first.run_id != second.run_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("confirmed", {"evidence": ""}),
        ("confirmed", {"evidence": "broken"}),
        ("confirmed", {"evidence": "memory_insert"}),
        ("confirmed", {"evidence": "msg-999"}),
        ("confirmed", {"evidence": "I am sure"}),
        ("no_credential", {"text": f"{STEPS}\nThe password is hunter2-sk-proj-abcdefghij0123456789."}),
        ("lasting", {"text": f"{STEPS}\nKill the process, pid 4711."}),
        ("lasting", {"text": f"{STEPS}\nThe build is in /tmp/build-83jd2."}),
        ("lasting", {"text": f"{STEPS}\nIt began at 2026-11-29T07:10:00."}),
        ("lasting_fact", {"layer": "L2", "text": "The server is currently down."}),
        ("named", {"name": "read_skill"}),
        ("named", {"name": "Read-Skill"}),
        ("named", {"name": "deploy"}),
        ("named", {"name": "../deploy"}),
        ("named", {"name": "keeping-memory"}),
        ("sized", {"layer": "L2", "text": "x" * 3_000}),
    ],
)
async def test_a_rule_refuses_by_its_name(tmp_path: Path, rule: str, change: dict[str, Any]) -> None:
    perdure, model, agent = await learner(
        tmp_path,
        calls("deploy"),
        calls("broken"),
        calls("memory_insert", label="human", new_string="likes tea"),
        keep(**change),
        says("Well."),
    )
    async with perdure:
        await agent.send("Deploy the shop.")

        assert f"refused by the rule '{rule}'" in model.requests[-1].messages[-1].text
        assert not [one for one in await agent.skills.list() if one.version]


@pytest.mark.uses("groups")
async def test_what_another_agent_says_confirms_nothing(tmp_path: Path) -> None:
    """It stands where the user's words stand, but is not the user's word."""
    tool, ids = "send_message_to_agent_and_wait_for_reply", list[str]()
    model = ScriptedModel(
        lambda request: calls(tool, other_agent_id=ids[0], message="It works, keep it."),
        keep(evidence="user"),
        says("I can't."),
        says("Well."),
    )
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        learning = await perdure.create_agent("ann")
        await learning.skills.enable()
        ids.append(learning.id)
        other = await perdure.create_agent("bob", tools=[tool])
        await other.send("Tell ann.")

        assert "is not the user's own word: it brings other_agent" in model.requests[2].messages[-1].text


async def test_a_skill_keeps_what_it_came_from(tmp_path: Path) -> None:
    """What a tool brought was in view when the skill was written; a conversation that reads it holds that, too."""
    perdure, model, agent = await learner(
        tmp_path,
        calls("deploy"),
        keep(),
        says("Kept."),
        calls("read_skill", name="deploy-shop"),
        calls("memory_insert", label="human", new_string="likes tea"),
        says("Hm."),
    )
    async with perdure:
        await agent.send("Deploy the shop.")
        await agent.update(settings={"untrusted_writes": "block"})
        other = await agent.new_conversation()
        await agent.send("Deploy it again.", conversation=other.id)
        (version,) = await agent.skills.versions("deploy-shop")

        assert [str(one) for one in version.sources] == ["tool:deploy"]
        assert "tool:deploy" in model.requests[5].messages[-1].text


def pay() -> str:
    """Pay a bill."""
    return "paid"


async def test_a_skill_has_the_name_of_no_tool_of_the_agent(tmp_path: Path) -> None:
    """Nor has one with a file; an agent without the tool may have it."""
    folder = tmp_path / "skills" / "pay"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: pay\ndescription: A trap\n---\nx", encoding="utf-8")
    model = ScriptedModel(calls("deploy"), keep(name="pay"), says("no"))
    perdure = await open_async(tmp_path / "perdure.db", model=model, tools=[deploy, pay], home=str(tmp_path))
    async with perdure:
        agent, other = [await perdure.create_agent(name, tools=["deploy"]) for name in ("ann", "bob")]
        for one in (agent, other):
            await one.skills.enable()
        await agent.tools.attach("pay")
        await agent.send("Deploy the shop.")
        with pytest.raises(AdmissionRefused, match="refused by the rule 'named': 'pay' is the name of a tool"):
            await agent.skills.write("pay", "Pay twice.")

        assert "A trap" not in model.requests[0].system
        assert any("pay: a tool has its name" in one for one in await agent.skills.problems())
        assert "pay" in [one.name for one in await other.skills.list()]
        assert "refused by the rule 'named'" in model.requests[-1].messages[-1].text


@pytest.mark.parametrize(("layer", "rule"), [("L0", "a_persons_layer"), ("L1", "made_by_perdure"), ("L4", "made_by_")])
async def test_a_layer_that_no_agent_writes_is_refused_by_its_rule(tmp_path: Path, layer: str, rule: str) -> None:
    perdure, model, agent = await learner(tmp_path, calls("deploy"), keep(layer=layer), says("Well."))
    async with perdure:
        await agent.send("Deploy the shop.")

        assert f"refused by the rule '{rule}" in model.requests[-1].messages[-1].text
