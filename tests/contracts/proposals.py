"""Proposals: each comes back as it was with what became of it; equal ones are found; organisations see their own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.errors import NotFound, ProposalDecided
from perdure.core.ids import AgentId, MessageId, OrgId, RunId
from perdure.features.proposals.tables import Proposals
from perdure.features.proposals.values import Proposal
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, UNTIL, Contract, raises

OTHER_ORG = OrgId("org-11111111-1111-4111-8111-111111111111")


def new_proposal(agent_id: AgentId, **fields: Any) -> Proposal:
    """A proposal, not added yet."""
    values: dict[str, Any] = {"kind": "block", "target_id": "block-1", "label": "human", "new_value": "a walrus"}
    values |= {"base_version": 0, "base_checksum": 7, "diff": "+a walrus", "change_digest": "digest"}
    values |= {"reason": "it is one", "evidence": "the user said so", "proposer_id": agent_id, "created_at": AT}
    return Proposal(**{"agent_id": agent_id, **values, **fields})


class ProposalContract(Contract):
    async def test_a_proposal_comes_back_as_it_was(self) -> None:
        """With every field, also text that databases can't hold as it is; numbers are an agent's own, from 1."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            awkward = {name: f"{name} \x00\x1b\ud800" for name in ("label", "new_value", "diff", "reason", "evidence")}
            made = {"proposer_id": other.id, "run_id": RunId("run-1"), "message_id": MessageId("message-1")}
            new = [new_proposal(agent.id), new_proposal(agent.id, **awkward, **made), new_proposal(other.id)]
            added = [await store.write(_add, one) for one in new]

            assert added == [replace(one, number=number) for one, number in zip(new, (1, 2, 1), strict=True)]
            for one in added:
                assert await store.read(_get, one) == one
            with raises(NotFound):
                await store.read(_get, replace(added[0], number=3))
            with raises(NotFound):
                await store.write(_add, new_proposal(AgentId("agent-nobody")))

    async def test_what_became_of_a_proposal_is_stored(self) -> None:
        """With who decided, when and why; the others wait on."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            new = [*(new_proposal(agent.id) for _ in range(4)), new_proposal(other.id)]
            approved, refused, outdated, waiting, others = [await store.write(_add, one) for one in new]
            assert await store.read(lambda tx: tx.of(Proposals).count_open(agent.id)) == 4

            def decide(tx: Tx) -> list[Proposal]:
                return [
                    tx.of(Proposals).decide(approved, "approved", at=LATER, by="ada", version=3),
                    tx.of(Proposals).decide(refused, "refused", at=UNTIL, by="ada", decision="no\x00\ud800"),
                    tx.of(Proposals).decide(outdated, "outdated", at=LATER),
                ]

            decided = await store.write(decide)
            assert decided == [
                replace(approved, state="approved", decided_at=LATER, decided_by="ada", version=3),
                replace(refused, state="refused", decided_at=UNTIL, decided_by="ada", decision="no\x00\ud800"),
                replace(outdated, state="outdated", decided_at=LATER),
            ]
            for one in (approved, *decided):  # one who read it before it was decided is told so
                with raises(ProposalDecided):
                    await store.write(_approve, one)
            for one in (*decided, waiting, others):
                assert await store.read(_get, one) == one
            assert await store.read(lambda tx: tx.of(Proposals).count_open(agent.id)) == 1
            assert await store.read(lambda tx: tx.of(Proposals).count_open(AgentId("agent-nobody"))) == 0

    async def test_lists_of_proposals(self) -> None:
        """Of one agent or of all, in one state or in any, the newest first, page by page."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            times = [AT + timedelta(seconds=place) for place in range(4)]
            owners = (agent.id, other.id, agent.id, agent.id)
            new = [new_proposal(of, created_at=at) for of, at in zip(owners, times, strict=True)]
            first, others, second, third = [await store.write(_add, one) for one in new]
            second = await store.write(lambda tx: tx.of(Proposals).decide(second, "refused", at=LATER))

            def check(tx: Tx) -> None:
                proposals = tx.of(Proposals)
                assert proposals.list(agent.id) == [third, second, first]
                assert proposals.list(None) == [third, second, others, first]
                assert proposals.list(agent.id, state="open") == [third, first]
                assert proposals.list(None, state="refused") == [second]
                assert proposals.list(agent.id, limit=2) == [third, second]
                assert proposals.list(agent.id, limit=2, before=second.number) == [first]
                assert proposals.list(agent.id, before=first.number) == []
                assert proposals.list(AgentId("agent-nobody")) == []

            await store.read(check)

    async def test_an_equal_proposal_is_found(self) -> None:
        """The newest that makes the same change or the same value, of the same thing of the agent, in that state."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            old = await store.write(_add, new_proposal(agent.id, new_value="a\x00"))
            newest = await store.write(_add, new_proposal(agent.id, new_value="a\x00", created_at=LATER))
            same_change = new_proposal(agent.id, new_value="other")
            same_value = new_proposal(agent.id, new_value="a\x00", change_digest="other")
            different = [
                new_proposal(agent.id, new_value="other", change_digest="other"),
                *(replace(old, agent_id=other.id), replace(old, kind="skill"), replace(old, target_id="block-2")),
            ]

            def check(tx: Tx) -> None:
                assert [tx.of(Proposals).find_equal(one, "open") for one in (same_change, same_value)] == [newest] * 2
                assert [tx.of(Proposals).find_equal(one, "open") for one in different] == [None] * 4
                assert tx.of(Proposals).find_equal(old, "refused") is None

            await store.read(check)
            refused = await store.write(lambda tx: tx.of(Proposals).decide(old, "refused", at=LATER))
            assert await store.read(lambda tx: tx.of(Proposals).find_equal(same_change, "refused")) == refused
            assert await store.read(lambda tx: tx.of(Proposals).find_equal(same_change, "open")) == newest

    async def test_proposals_that_are_added_at_once_have_numbers_of_their_own(self) -> None:
        """Where each locks the agent before."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await asyncio.gather(*(store.write(_add, new_proposal(agent.id)) for _ in range(8)))

            found = await store.read(lambda tx: tx.of(Proposals).list(agent.id))
            assert [one.number for one in found] == list(range(8, 0, -1))

    async def test_proposals_of_another_organisation_are_out_of_reach(self) -> None:
        """Also in the list of all agents, and for one who knows a proposal of it."""
        async with self.open_store() as ours, self.open_store(org_id=OTHER_ORG) as theirs:
            own, foreign = [
                await store.write(lambda tx: _add(tx, new_proposal(self.add_agent(tx).id))) for store in (ours, theirs)
            ]
            assert await ours.read(lambda tx: tx.of(Proposals).list(None)) == [own]
            assert await ours.read(lambda tx: tx.of(Proposals).list(foreign.agent_id)) == []
            assert await ours.read(lambda tx: tx.of(Proposals).count_open(foreign.agent_id)) == 0
            assert await ours.read(lambda tx: tx.of(Proposals).find_equal(foreign, "open")) is None
            for unit in (_get, _add, _approve):
                with raises(NotFound):
                    await ours.write(unit, foreign)
            assert await theirs.read(lambda tx: tx.of(Proposals).list(None)) == [foreign]


def _add(tx: Tx, proposal: Proposal) -> Proposal:
    """Add a proposal as the verb asks for: with its agent locked."""
    tx.agents.lock(proposal.agent_id)
    return tx.of(Proposals).add(proposal)


def _approve(tx: Tx, proposal: Proposal) -> Proposal:
    """The proposal, approved."""
    return tx.of(Proposals).decide(proposal, "approved", at=LATER)


def _get(tx: Tx, proposal: Proposal) -> Proposal:
    """The proposal as it is stored."""
    return tx.of(Proposals).get(proposal.agent_id, proposal.number)
