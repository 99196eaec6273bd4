"""How statements find their rows: by an index over all columns that limit them, whatever else the store holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.core.agents import AgentFilter
from perdure.core.conversations import ConversationFilter
from perdure.core.ids import AgentId, ArchiveId, IdentityId, MessageId, ToolId
from perdure.core.messages import MessageFilter
from perdure.core.runs import RunFilter, RunKey
from perdure.core.sources import Source
from perdure.core.specs import ToolFilter
from perdure.domain.archives.passages import PARTS_ROWS, page_of_text
from perdure.features.facts.tables import Episodes
from perdure.features.files.folder_tables import Folders
from perdure.storage.tx import Tx
from tests.contracts.base import AT, Contract

_SQLITE_STEP = re.compile(r"(?:SEARCH|SCAN) (\w+)(?: USING .*?\((.*)\))?")
_POSTGRES_SCAN = re.compile(r"(?:Scan|Only|using \w+) on (\w+)(?: (\w+))?  ")
_POSTGRES_CONDITION = re.compile(r"Index Cond: (.*)")


AGENTS, MESSAGES, AT_ONCE = 100, 600, 500
OTHER = AgentId("agent-other")
MANY = [OTHER, *(AgentId(f"agent-{number}") for number in range(50))]
"""As many as a page has: SQLite takes an index by another condition for as good."""
PAGE = Source("web", "https://example.com")


def is_postgres(db: Any) -> bool:
    """Whether this is the one of two databases."""
    return hasattr(db, "full_text_table") and hasattr(db, "topics")


@dataclass
class Explained:
    """A database that keeps the plans of the statements which read it."""

    db: Any
    plans: list[list[str]] = field(default_factory=list)
    ways: Sequence[str] = ("seqscan", "sort", "bitmapscan", "hashjoin", "mergejoin")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)

    def _explain(self, sql: str, params: Any) -> None:
        if is_postgres(self.db):  # so small a table would be read whole
            for way in self.ways:
                self.db.run(f"SET LOCAL enable_{way} = off", {})
        rows = self.db.rows(f"EXPLAIN {'' if is_postgres(self.db) else 'QUERY PLAN '}{sql}", params)
        self.plans.append([str(row[-1]) for row in rows])

    def rows(self, sql: str, params: Any) -> Any:
        self._explain(sql, params)
        return self.db.rows(sql, params)

    def rows_of_bytes(self, sql: str, params: Any) -> Any:
        self._explain(sql, params)
        return self.db.rows_of_bytes(sql, params)

    def columns_of(self, name: str) -> list[str]:
        """The conditions by which indexes find rows of a table, or of its alias; empty: it is read whole."""
        found, at = [], ""
        for line in (line for plan in self.plans for line in plan):
            if step := _SQLITE_STEP.match(line):
                found += [step[2] or ""] if step[1] == name else []
            elif "Bitmap Index" not in line and (scan := _POSTGRES_SCAN.search(line)):
                at = scan[2] or scan[1]
                found += [""] if at == name else []
            elif at == name and (condition := _POSTGRES_CONDITION.search(line)):
                found[-1] = condition[1]
        return found

    @property
    def sorts(self) -> bool:
        """Whether rows are sorted."""
        return any("TEMP B-TREE FOR ORDER BY" in line or "Sort Key" in line for plan in self.plans for line in plan)


Unit = Callable[[Tx, AgentId], Any]
CONVERSATION = "agent_id conversation_seq"

FINDS: dict[str, tuple[Unit, str, str]] = {
    "sources of messages": (
        lambda tx, agent: tx.sources.list_by_messages(agent, [*range(1, 9)]),
        "s",
        f"{CONVERSATION} seq",
    ),
    "sources of a conversation": (
        lambda tx, agent: tx.sources.list_by_conversation(agent, 0, from_seq=1, before_seq=9),
        "s",
        f"{CONVERSATION} seq",
    ),
    "first messages of sources": (
        lambda tx, agent: tx.sources.list_first(agent, 0, from_seq=1, before_seq=9, most=9),
        "s",
        f"{CONVERSATION} seq",
    ),
    "messages of a conversation": (
        lambda tx, agent: tx.messages.list(agent, conversation_seq=0, after_seq=1, limit=9),
        "messages",
        f"{CONVERSATION} seq",
    ),
    "the view": (
        lambda tx, agent: tx.messages.view(agent, 0, from_seq=1, upto_seq=9),
        "messages",
        f"{CONVERSATION} seq",
    ),
    "ids of the view": (
        lambda tx, agent: tx.conversations.list_view_ids([(agent, 0)]),
        "messages",
        f"{CONVERSATION} seq",
    ),
    "the newest messages of a conversation": (
        lambda tx, agent: tx.messages.list(agent, conversation_seq=0, newest_first=True, limit=9),
        "messages",
        CONVERSATION,
    ),
    "messages by number": (
        lambda tx, agent: tx.messages.list_by_seqs(agent, [*range(1, 9)]),
        "messages",
        "agent_id seq",
    ),
    "the active run": (lambda tx, agent: tx.runs.find_active(agent, 0), "r", "conversation_id"),
    "events": (lambda tx, agent: tx.events.list(RunKey(agent, 0), after=3), "events", "agent_id run_seq seq"),
    "steps of a run": (lambda tx, agent: tx.steps.list_by_run(RunKey(agent, 0)), "steps", "agent_id run_seq"),
    "waiting conversations of an agent": (lambda tx, agent: tx.conversations.list_pending(agent), "c", "agent_id"),
    "agents of a name": (lambda tx, agent: tx.agents.find_by_name("ada"), "a", "org_id name"),
    "number of agents": (lambda tx, agent: tx.agents.count(AgentFilter(hidden=False)), "a", "org_id hidden"),
    "position of extraction": (lambda tx, agent: tx.of(Episodes).last_seq(agent, 0), "extractions", CONVERSATION),
    "conversations of an agent": (
        lambda tx, agent: tx.conversations.page(ConversationFilter(agent_id=agent), limit=9),
        "c",
        "agent_id",
    ),
    "episodes of messages": (
        lambda tx, agent: tx.of(Episodes).list_by_messages(agent, [1, 2]),
        "episodes",
        "agent_id message_seq",
    ),
}
"""Name -> what reads, the table or alias, and the columns by which its rows are found."""

BY_KEYS: dict[str, tuple[Unit, str, str]] = {
    "owners of identities": (
        lambda tx, agent: tx.identities.list_owners("agent", [IdentityId(one) for one in MANY], limit=9),
        "x",
        "identity_id",
    ),
    "secrets of agents": (lambda tx, agent: tx.secrets.list_by_owners([agent, *MANY]), "secrets", "org_id owner_id"),
    "identities of agents": (lambda tx, agent: tx.identities.list_by_agents([agent, *MANY]), "t", "id"),
    "folders of agents": (lambda tx, agent: tx.of(Folders).list_by_agents([agent, *MANY]), "t", "id"),
    "tools of agents": (lambda tx, agent: tx.tools.list_by_agents([agent, *MANY]), "t", "id"),
    "blocks of agents": (lambda tx, agent: tx.blocks.list_by_agents([agent, *MANY]), "x", "agent_id"),
    "last messages of agents": (lambda tx, agent: tx.conversations.last_message_times([agent, *MANY]), "c", "agent_id"),
    "newest runs of agents": (lambda tx, agent: tx.runs.list_newest([agent, *MANY], limit=2), "r", "agent_id seq"),
    "agents of newest runs": (lambda tx, agent: tx.runs.list_newest([agent, *MANY], limit=2), "a", "id"),
    "views of conversations": (
        lambda tx, agent: tx.messages.views({(one, 0): 1 for one in (agent, *MANY)}),
        "messages",
        f"{CONVERSATION} seq",
    ),
    "ids of views": (
        lambda tx, agent: tx.conversations.list_view_ids([(one, 0) for one in (agent, *MANY)]),
        "messages",
        f"{CONVERSATION} seq",
    ),
    "runs by their keys": (
        lambda tx, agent: tx.runs.list_by_keys([RunKey(one, 0) for one in (agent, *MANY)]),
        "r",
        "agent_id seq",
    ),
    "conversations by their keys": (
        lambda tx, agent: tx.conversations.list_by_keys([(one, 0) for one in (agent, *MANY)]),
        "c",
        "agent_id seq",
    ),
    "own blocks of conversations": (
        lambda tx, agent: tx.blocks.list_isolated_of([(one, 0) for one in (agent, *MANY)]),
        "x",
        CONVERSATION,
    ),
    "messages that the index does not have": (
        lambda tx, agent: tx.messages.scopes([agent, *MANY], where=MessageFilter()),
        "messages",
        "agent_id seq",
    ),
    "scopes of agents": (lambda tx, agent: tx.messages.scopes([agent, *MANY], where=MessageFilter()), "a", "id"),
    "system messages": (
        lambda tx, agent: tx.system_messages.find_ids([(one, 0) for one in (agent, *MANY)]),
        "s",
        CONVERSATION,
    ),
    "archives": (lambda tx, agent: tx.archives.list_by_ids([ArchiveId(one) for one in MANY]), "archives", "id"),
    "blocks by ids": (lambda tx, agent: tx.blocks.list_by_ids(MANY), "b", "id"),
    "tools read by ids": (lambda tx, agent: tx.tools.list_by_ids([ToolId(one) for one in MANY]), "tools", "id"),
    "code of tools": (lambda tx, agent: tx.tools.codes([ToolId(one) for one in MANY]), "tools", "id"),
    "agents": (lambda tx, agent: tx.agents.list_by_ids([agent, *MANY]), "a", "id"),
    "ids": (lambda tx, agent: tx.messages.find_existing([MessageId(f"message-{one}") for one in MANY]), "ids", "id"),
    "tools by ids": (
        lambda tx, agent: tx.tools.page(where=ToolFilter(ids=tuple(map(ToolId, MANY))), limit=9),
        "tools",
        "id",
    ),
}
"""The same for several keys at once, which SQLite looks up one by one. What PostgreSQL does with them depends on how
much there is, and here are few rows."""

PAGES: dict[str, Unit] = {
    "agents": lambda tx, agent: tx.agents.page(where=AgentFilter(hidden=False), limit=9),
    "agents by change": lambda tx, agent: tx.agents.page(where=AgentFilter(), order="updated", limit=9),
    "conversations": lambda tx, agent: tx.conversations.page(ConversationFilter(), limit=9),
    "conversations by message": lambda tx, agent: tx.conversations.page(
        ConversationFilter(), order="last_message", limit=9
    ),
    "runs": lambda tx, agent: tx.runs.page(RunFilter(), limit=9),
    "runs of an agent": lambda tx, agent: tx.runs.page(RunFilter(agent_ids=(agent,)), limit=9),
    "sources of a conversation": lambda tx, agent: tx.sources.list_by_conversation(agent, 0, before_seq=9),
    "messages of all agents": lambda tx, agent: tx.messages.list_of_all_agents(limit=9),
}
"""What reads a page in the order of an index: a sort would read all that there is."""


class PlanContract(Contract):
    def fill(self, tx: Tx) -> AgentId:
        """Some agents that have said something, with episodes; return one of them."""
        graph = self.add_graph(tx)
        agents = [self.add_agent(tx, f"ada {number}").id for number in range(AGENTS)]
        for agent in agents[:3]:
            drafts = [replace(self.draft("hello"), sources=(PAGE,)) for _ in range(MESSAGES)]
            tx.messages.append((agent, 0), drafts, [1] * MESSAGES, at=AT)
            tx.messages.append((agent, 0), [self.draft("hello")], [1], at=AT)  # the index takes several at a time
        tx.of(Episodes).add(
            [
                self.new_episode(graph.id, f"message {number}", agent_id=agents[number % 9], message_seq=number)
                for number in range(AGENTS)
            ]
        )
        if is_postgres(tx._db):
            tx._db.run("ANALYZE", {})
        return agents[0]

    async def explain(self, units: Mapping[str, Unit]) -> dict[str, Explained]:
        """The plans of what units read."""

        def read(tx: Tx) -> dict[str, Explained]:
            found: dict[str, Any] = {name: Explained(tx._db) for name in units}
            for name, unit in units.items():
                unit(Tx(found[name], tx.org_id), agent)
            return found

        async with self.open_store() as store:
            agent = await store.write(self.fill)
            return await store.read(read)

    async def test_rows_are_found_by_all_columns_that_limit_them(self) -> None:
        """By fewer, the cost would grow with the agent's other conversations."""
        plans = await self.explain({name: unit for name, (unit, _, _) in (FINDS | BY_KEYS).items()})
        for name, (_, table, columns) in (FINDS | BY_KEYS).items():
            # With as few rows as here PostgreSQL takes the index of all messages of an agent for as good.
            if (name in BY_KEYS or name == "messages of a conversation") and is_postgres(plans[name].db):
                continue
            found = plans[name].columns_of(table)

            assert found, f"{name}: {plans[name].plans}"
            for by in found:
                missing = [column for column in columns.split() if not re.search(rf"\b{column}\b", by)]
                assert not missing, f"{name}: {table} is read by {by or 'nothing'}, without {missing}"

    async def test_a_page_is_read_in_the_order_of_an_index(self) -> None:
        """So that its cost does not grow with what is behind it."""
        for name, explained in (await self.explain(PAGES)).items():
            assert explained.plans and not explained.sorts, f"{name}: {explained.plans}"

    async def test_a_part_of_a_passage_is_found_by_the_index_behind_the_first_ones(self) -> None:
        """The texts of a large archive are not looked through one by one."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)

            def fill(tx: Tx, first: int) -> None:
                tx.passages.add(
                    [self.new_passage(archive.id, f"note {n} of many") for n in range(first, first + AT_ONCE)]
                )
                if is_postgres(tx._db):
                    tx._db.run("ANALYZE", {})

            for first in range(0, 2 * PARTS_ROWS, AT_ONCE):
                await store.write(fill, first)

            def explain(tx: Tx) -> tuple[list[str], Explained]:
                explained = Explained(tx._db, ways=("seqscan",))
                found = page_of_text(Tx(explained, tx.org_id), archive.id, f"TE {PARTS_ROWS + 7} OF")
                return [one.text for one in found], explained

            texts, explained = await store.read(explain)

        assert texts == [f"note {PARTS_ROWS + 7} of many"]
        # With as few rows as here PostgreSQL takes the key of the rows for as good as their words.
        assert is_postgres(explained.db) or "VIRTUAL TABLE INDEX" in str(explained.plans[-2])
        for by in Explained(None, explained.plans[-1:]).columns_of("p"):
            assert re.search(r"seq = ANY|seq=\?", by), f"texts are read by {by}"

    async def test_few_that_wait_are_found_among_many(self) -> None:
        """By an index of those that wait, not by all conversations, nor by all agents."""
        explained = await self.explain({"": lambda tx, agent: tx.conversations.list_pending()})

        assert "conversations_pending" in str(explained[""].plans)
