"""`tx.of(Proposals)`: the proposals for agents' memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import ProposalDecided
from perdure.core.ids import AgentId
from perdure.features.proposals.values import Proposal, ProposalState
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.table import OWN_AGENT, Table, first, own_agent

_PROPOSAL = row_format.RowFormat(Proposal)
_SELECT = f"SELECT {_PROPOSAL.columns_of('p')} FROM proposals p"
_OWN = "EXISTS (SELECT 1 FROM agents a WHERE a.id = p.agent_id AND a.org_id = :org_id)"


class Proposals(Table):
    """The proposals for the agents of an organisation, numbered for each agent, in one transaction."""

    def add(self, proposal: Proposal) -> Proposal:
        """Add a proposal, and return it with its number. The caller has locked the agent. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, proposal.agent_id)
        proposal = replace(proposal, number=self._next("proposals", "number", agent_id=own) or 1)
        self._run(row_format.insert_into("proposals", _PROPOSAL.columns), **_PROPOSAL.params(proposal))
        return proposal

    def get(self, agent_id: AgentId, number: int) -> Proposal:
        """Return a proposal. Raises: NotFound."""
        rows = self._read("p.agent_id = :agent_id AND p.number = :number", 1, agent_id=agent_id, number=number)
        return first(rows, "proposal", str(number), hint="`perdure proposal list` lists them")

    def list(
        self,
        agent_id: AgentId | None,
        *,
        state: ProposalState | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[Proposal]:
        """The proposals for an agent, or for all agents, newest first: those with a number below `before`."""
        where = Conditions("1 = 1")
        where.equal("p.agent_id", agent_id)
        where.equal("p.state", state)
        where.add("p.number < ?", before)
        return self._read(str(where), limit, **where.params)

    def find_equal(self, proposal: Proposal, state: ProposalState) -> Proposal | None:
        """Return the newest proposal in this state with the same change of the same thing; for a block, which agents
        may share, also a refused one of another agent."""
        where = Conditions("p.kind = :kind", "p.target_id = :target_id", "p.state = :state")
        if (proposal.kind, state) != ("block", "refused"):
            where.equal("p.agent_id", proposal.agent_id)
        where.add(
            "(p.change_digest = ? OR p.new_value = ?)", proposal.change_digest, row_format.storable(proposal.new_value)
        )
        key = _PROPOSAL.params(proposal, "kind, target_id")
        return next(iter(self._read(str(where), 1, **key, state=state, **where.params)), None)

    def count_open(self, agent_id: AgentId) -> int:
        """Return how many proposals for an agent wait."""
        sql = f"SELECT COUNT(*) FROM proposals p WHERE p.agent_id = :agent_id AND p.state = 'open' AND {_OWN}"
        return int(self._value(sql, agent_id=agent_id))

    def decide(
        self,
        proposal: Proposal,
        state: ProposalState,
        *,
        at: datetime,
        by: str | None = None,
        decision: str = "",
        version: int | None = None,
    ) -> Proposal:
        """Store what became of an open proposal, and return it. Raises: NotFound; ProposalDecided: it waits no more."""
        decided = replace(proposal, state=state, decided_at=at, decided_by=by, decision=decision, version=version)
        names = "state, decided_at, decided_by, decision, version"
        changed = self._run_counted(
            f"UPDATE proposals SET {row_format.assignments(names)}"
            f" WHERE agent_id = :agent_id AND number = :number AND state = 'open' AND {OWN_AGENT}",
            **_PROPOSAL.params(decided, f"agent_id, number, {names}"),
        )
        if not changed:
            raise ProposalDecided(proposal.number, state=self.get(proposal.agent_id, proposal.number).state)
        return decided

    def _read(self, where: str, limit: int, **params: Any) -> Sequence[Proposal]:
        """Proposals, newest first."""
        sql = f"{_SELECT} WHERE {where} AND {_OWN} ORDER BY p.created_at DESC, p.agent_id, p.number DESC LIMIT :limit"
        return self._all(_PROPOSAL, sql, limit=limit, **params)
