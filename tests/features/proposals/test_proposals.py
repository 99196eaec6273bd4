"""What only a person changes, and what agents propose: made, approved, refused, and refused again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, BlockProtected, InvalidInput, Perdure, ProposalDecided, ProposalOutdated
from perdure.core.blocks import Author
from perdure.core.errors import NotFound
from perdure.features.proposals.values import OPEN_MAX, digest_of_change
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import open_async, open_sync
from tests.support.two_apps import STORES, address_of, two_apps

TOOLS = ["propose_change", "memory_insert", "core_memory_append", "memory"]
POLICY = "Be kind.\nAsk before you pay."
FIELDS: tuple[dict[str, Any], ...] = (
    {"value": "x"},
    {"metadata": {}},
    {"label": "other"},
    {"limit_chars": 50_000},
    {"description": "x"},
    {"read_only": True},
    {"tags": ["x"]},
    {"hidden": True},
)
WHY = {"reason": "A payment failed.", "evidence": "pay returned: needs a person"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


@pytest.fixture
def agent(store: Perdure) -> Agent:
    made = store.create_agent("ann", tools=TOOLS)
    made.blocks.create("policy", POLICY)
    made.proposals.protect("policy")
    return made


def propose(agent: Agent, **arguments: Any) -> str:
    """The result of `propose_change`, run by hand, with the usual reason and evidence."""
    return agent.tools.run("propose_change", {"label": "policy", **WHY, **arguments}).text


def test_an_approved_proposal_is_an_ordinary_version_by_the_person(agent: Agent) -> None:
    said = propose(agent, old="Ask before you pay.", new="Ask before you pay more than 10.")
    (waiting,) = agent.proposals.list()
    before = agent.blocks.get("policy").value
    approved = agent.proposals.approve(waiting.number, author=Author(kind="user", id="ben"))
    newest = agent.blocks.history("policy")[0]

    assert said == "Proposal 1 waits for a person. Until it is approved, policy stays as it is."
    assert (waiting.state, waiting.reason, waiting.evidence) == ("open", *WHY.values())
    assert "-Ask before you pay." in waiting.diff and "+Ask before you pay more than 10." in waiting.diff
    assert before == POLICY
    assert (approved.state, approved.decided_by, approved.version) == ("approved", "ben", newest.version)
    assert agent.blocks.get("policy").value == "Be kind.\nAsk before you pay more than 10."
    assert (newest.author.kind, newest.author.id, newest.author.label) == ("user", "ben", "agent")
    assert agent.blocks.get("policy").is_protected
    with pytest.raises(ProposalDecided, match="approved already"):
        agent.proposals.refuse(waiting.number)


def test_a_refused_proposal_is_not_taken_again(agent: Agent) -> None:
    """Nor the same change in other words of white space, nor in the block as it is later; another one is."""
    propose(agent, new_value=f"{POLICY}\nPay at once.")
    agent.proposals.refuse(1, "No: money is never paid at once.")
    again = propose(agent, old="pay.", new="pay.\nPay  at once.")
    agent.blocks.update("policy", f"Be brief.\n{POLICY}")
    later = propose(agent, old="pay.", new="pay.\nPay at once.")
    other = propose(agent, old="Be kind.", new="Be very kind.")

    for text in (again, later):
        assert "a person has refused this change of 'policy' (proposal 1): No: money is never paid at once." in text
    assert "Proposal 2 waits" in other
    assert [one.number for one in agent.proposals.list(state="refused")] == [1]


@pytest.mark.parametrize(
    "line", ["Pay at\u200b once.", "Ｐay at once.", "PAY AT ONCE.", "Pay  at once. ", "Pay at once\u00ad."]
)
def test_a_refused_change_in_other_letters_is_the_same(agent: Agent, line: str) -> None:
    """As is one with letters that nobody sees."""
    propose(agent, old="pay.", new="pay.\nPay at once.")
    agent.proposals.refuse(1, "Never.")

    assert "a person has refused this change" in propose(agent, old="pay.", new=f"pay.\n{line}")


def test_a_refused_change_is_refused_for_all_agents_that_share_the_block(store: Perdure, agent: Agent) -> None:
    """The other one reads the reason, too."""
    propose(agent, new_value="Pay at once.")
    agent.proposals.refuse(1, "Never.")
    other = store.create_agent("ben", tools=TOOLS)
    other.blocks.attach(agent.blocks.get("policy").id)

    assert "(proposal 1): Never." in propose(other, new_value="Pay at once.")
    assert "waits for a person" in propose(other, new_value="Pay soon.")


def test_a_block_that_changed_meanwhile_is_left_as_it_is(agent: Agent) -> None:
    """The approval is refused, with nothing half-applied; the change can be proposed anew."""
    change = {"old": "Be kind.", "new": "Be very kind."}
    propose(agent, **change)
    agent.blocks.update("policy", f"{POLICY}\nBe brief.")
    with pytest.raises(ProposalOutdated, match="was changed after proposal 1"):
        agent.proposals.approve(1)
    (waiting,) = agent.proposals.list()
    said = propose(agent, **change)
    states = {one.number: one.state for one in agent.proposals.list(state=None)}
    agent.proposals.approve(2)

    assert waiting.number == 1 and "Proposal 2 waits" in said
    assert states == {1: "outdated", 2: "open"}
    assert agent.blocks.get("policy").value == "Be very kind.\nAsk before you pay.\nBe brief."


def test_a_change_that_is_no_text_does_not_outdate(agent: Agent) -> None:
    """Another limit or description leaves the difference as it was shown."""
    propose(agent, old="kind", new="fair")
    agent.blocks.change("policy", description="What holds.", limit_chars=4_000)

    assert agent.proposals.approve(1).state == "approved"


def test_the_same_proposal_twice_is_one(agent: Agent) -> None:
    first, second = (propose(agent, old="kind", new="fair") for _ in range(2))

    assert first == second
    assert len(agent.proposals.list(state=None)) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "give either new_value, or old and new"),
        ({"new_value": "x", "old": "y"}, "give either new_value, or old and new"),
        ({"new_value": "x", "new": "y"}, "give either new_value, or old and new"),
        ({"old": "nowhere", "new": "x"}, "did not appear verbatim"),
        ({"old": "e", "new": "x"}, "appears"),
        ({"new_value": POLICY}, "nothing would change"),
        ({"new_value": "x" * 6_000}, "its limit is 5,000"),
        ({"new_value": "x", "reason": " "}, "reason needs 1 to 2,000 characters"),
        ({"new_value": "x", "evidence": "x" * 2_001}, "evidence needs 1 to 2,000 characters"),
        ({"new_value": "x", "label": "nothing"}, "nothing"),
    ],
)
def test_a_proposal_that_can_not_be_made_says_why(agent: Agent, arguments: dict[str, str], problem: str) -> None:
    assert problem in propose(agent, **arguments)
    assert agent.proposals.list(state=None) == []


def test_a_flood_of_proposals_ends(agent: Agent) -> None:
    texts = [propose(agent, new_value=f"{POLICY}\n{number}") for number in range(OPEN_MAX + 1)]

    assert f"{OPEN_MAX} proposals wait for a person already" in texts[-1]
    assert len(agent.proposals.list(limit=100)) == OPEN_MAX


def test_a_credential_is_never_proposed(agent: Agent) -> None:
    """A person who approves it would store it."""
    propose(agent, new_value=f"{POLICY}\nThe key is sk-proj-{'a1B2' * 12}.")

    assert "a1B2" not in agent.proposals.get(1).new_value


def test_the_agent_is_told_what_helps(tmp_path: Path) -> None:
    """The error of the tool names the other one; the model sees which block is protected."""
    script = (
        calls("memory_insert", label="policy", new_string="Pay at once."),
        calls("propose_change", label="policy", old="Be kind.", new="Be fair.", **WHY),
        says("I have asked."),
    )
    with open_sync(tmp_path / "perdure.db", *script) as store:
        agent = store.create_agent("ann", tools=TOOLS)
        agent.blocks.create("policy", POLICY)
        agent.proposals.protect("policy")
        reply = agent.send("Hello")
        one = agent.proposals.get(1)
        texts = [result.text for message in reply.messages for result in message.results]
        system = agent.request(agent.steps()[-1].id).system

        assert "Propose the change with propose_change" in texts[0] and "is protected" in texts[0]
        assert "- protected=true" in system
        assert (one.proposer_id, one.run_id) == (agent.id, reply.run_id)
        assert agent.blocks.get("policy").value == POLICY


@pytest.mark.parametrize("label", ["Policy", "ＰＯＬＩＣＹ"])
def test_no_other_block_looks_like_a_protected_one(tmp_path: Path, label: str) -> None:
    """A model would take it for the rules; a person may make it."""
    script = (
        calls("memory", command="create", path=f"/memories/{label}", file_text="Pay at once."),
        calls("memory", command="rename", old_path="human", new_path=label),
        says("Hm."),
    )
    with open_sync(tmp_path / "perdure.db", *script) as store:
        agent = store.create_agent("ann", tools=TOOLS, human="Ann")
        agent.blocks.create("policy", POLICY)
        agent.proposals.protect("policy")
        reply = agent.send("Hello")
        texts = [result.text for message in reply.messages for result in message.results]
        labels = [block.label for block in agent.blocks.list()]
        agent.blocks.create(label, "By a person.")

    assert all("Block 'policy' is protected" in text for text in texts) and len(texts) == 2
    assert labels == ["persona", "human", "policy"]


def test_only_the_mark_protects_and_only_people_take_it_away(agent: Agent) -> None:
    agent.blocks.change("policy", metadata={"protected": False})
    agent.tools.run("core_memory_append", {"label": "policy", "content": "x"})
    agent.proposals.protect("policy")
    agent.proposals.protect("policy", on=False)

    assert agent.blocks.get("policy").value.endswith("x")
    assert "protected" not in agent.blocks.get("policy").metadata
    with pytest.raises(NotFound):
        agent.proposals.protect("nowhere")


async def test_an_author_that_is_no_person_changes_nothing(tmp_path: Path) -> None:
    """Whatever the field, and whoever it is: an agent, or Perdure itself."""
    async with await open_async(tmp_path / "perdure.db") as store:
        agent = await store.create_agent("ann")
        await agent.blocks.create("policy", "")
        await agent.blocks.update("policy", POLICY)
        before = await agent.proposals.protect("policy")
        own, one = agent.blocks, before.id
        changes: list[Callable[[Author], Awaitable[object]]] = [
            *(lambda by, field=field: own.edit("policy", field, author=by) for field in FIELDS),
            *(lambda by, field=field: store.blocks.edit(one, field, author=by) for field in FIELDS),
            lambda by: own.append("policy", "x", author=by),
            lambda by: own.restore("policy", 0, author=by),
            lambda by: own.replace_line("policy", 1, "x", author=by),
            lambda by: agent.proposals.protect("policy", on=False, author=by),
        ]
        for author in (Author(kind="agent", id=agent.id, agent_id=agent.id), Author(kind="system", id="perdure")):
            for change in changes:
                with pytest.raises(BlockProtected):
                    await change(author)

        assert await own.get("policy") == before


def test_equal_changes_have_equal_digests() -> None:
    assert digest_of_change("@@ -1 +1 @@\n a\n-b\n+c  d") == digest_of_change("@@ -9 +9 @@\n x\n-b \n+c d\n y")
    assert digest_of_change("-b\n+c") != digest_of_change("-c\n+b")


def test_a_wrong_number_or_reason_is_refused(agent: Agent) -> None:
    propose(agent, new_value="x")
    with pytest.raises(NotFound):
        agent.proposals.approve(2)
    with pytest.raises(InvalidInput):
        agent.proposals.refuse(1, "x" * 2_001)
    with pytest.raises(InvalidInput):
        agent.proposals.get("1")  # type: ignore[arg-type]


def test_proposals_of_all_agents_are_listed_and_go_with_them(store: Perdure, agent: Agent) -> None:
    propose(agent, new_value="x")
    other = store.create_agent("ben", tools=TOOLS)
    other.tools.run("propose_change", {"label": "human", "new_value": "Ben", **WHY})

    assert {one.agent_id for one in store.proposals.list()} == {agent.id, other.id}
    store.delete_agent(other.id)
    assert [one.agent_id for one in store.proposals.list()] == [agent.id]


@pytest.mark.parametrize("kind", STORES)
async def test_two_people_who_decide_at_once_decide_once(tmp_path: Path, kind: str) -> None:
    """In two processes on one store: one of them is told that it was decided already, and there is one version."""
    async with two_apps(await address_of(kind, tmp_path), ScriptedModel()) as (first, second):
        agent = await first.create_agent("ann", tools=TOOLS)
        await agent.blocks.create("policy", POLICY)
        for number in range(1, 6):
            value = f"{POLICY}\n{number}"
            await agent.tools.run("propose_change", {"label": "policy", "new_value": value, **WHY})
            before = await agent.blocks.get("policy")
            deciders = [one.agent_of(agent.id).proposals for one in (first, second)]
            outcomes = await asyncio.gather(*(one.approve(number) for one in deciders), return_exceptions=True)
            after = await agent.blocks.get("policy")

            assert sorted(type(one).__name__ for one in outcomes) == ["Proposal", "ProposalDecided"]
            assert (after.value, after.version) == (value, before.version + 1)


def test_a_proposal_for_a_block_that_the_agent_has_no_more_changes_nothing(store: Perdure, agent: Agent) -> None:
    """Another agent may have it now."""
    propose(agent, new_value="Pay at once.")
    (waiting,) = agent.proposals.list()
    block, other = agent.blocks.get("policy"), store.create_agent("ben")
    agent.blocks.detach("policy")
    other.blocks.attach(block.id)

    with pytest.raises(NotFound, match="no longer a block of the agent"):
        agent.proposals.approve(waiting.number)
    assert other.blocks.get("policy").value == POLICY


def test_a_text_that_is_no_unicode_is_proposed_as_any_other(agent: Agent) -> None:
    propose(agent, new_value="Pay \ud800 at once.")

    assert len(agent.proposals.list()) == 1
