"""`tx.of(MemoryGit)`: the commits of agents' memories, as packs, and further Markdown files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.ids import AgentId, BlockId
from perdure.engine.ports import Ports
from perdure.features.memory_git.values import GitHistory, HeadFile, MemoryMoved, Pack
from perdure.storage.database import row_format
from perdure.storage.tables.table import OWN_AGENT, OwnId, Table, own_agent
from perdure.storage.tx import Tx

PARTS_MAX = 40
"""Packs that are read at once: when there are more, they become one."""


class MemoryGit(Table):
    """The memory repositories of an organisation's agents, in one transaction."""

    def history(self, agent_id: AgentId) -> GitHistory:
        """Where the commits of an agent stand. Raises: NotFound: there is no such agent."""
        own = own_agent(self._db, self._org_id, agent_id)
        sql = "SELECT generation, seq, head, entries, forgotten FROM memory_histories WHERE agent_id = :agent_id"
        for generation, seq, head, state, forgotten in self._rows(sql, agent_id=own):
            known = row_format.load(state) or {}
            return GitHistory(
                agent_id=agent_id,
                generation=generation,
                seq=seq,
                head=head,
                entries={path: HeadFile(*values) for path, values in known.get("entries", {}).items()},
                left=known.get("left", {}),
                forgotten=forgotten,
            )
        return GitHistory(agent_id=agent_id)

    def packs(self, agent_id: AgentId) -> Sequence[Pack]:
        """Return the git packs with all commits of an agent's memory, oldest first."""
        sql = f"SELECT pack, pack_index FROM memory_packs WHERE agent_id = :agent_id AND {OWN_AGENT} ORDER BY seq"
        rows = self._rows(sql, agent_id=agent_id)
        return [Pack(pack=bytes(pack), pack_index=bytes(index)) for pack, index in rows]

    def advance(
        self, history: GitHistory, pack: Pack, commits: Mapping[tuple[str, int], tuple[str, str]], *, whole: bool
    ) -> GitHistory:
        """Store where the commits stand now, with the pack of those that are new; return it with its number.

        Args:
            history: its number is that of before.
            commits: (thing, version) -> (hash, reason) of the new ones. An empty reason leaves the one that is known.
            whole: whether the pack has all commits, not only those that are new.
        Raises: MemoryMoved: others have stored commits since; NotFound.
        """
        own = own_agent(self._db, self._org_id, history.agent_id, lock=True)
        if self.history(history.agent_id).seq != history.seq:
            raise MemoryMoved
        if whole:
            self._run("DELETE FROM memory_packs WHERE agent_id = :agent_id", agent_id=own)
        after = replace(history, seq=history.seq + 1)
        self._run(
            row_format.insert_into("memory_packs", "agent_id, seq, pack, pack_index"),
            agent_id=own,
            seq=after.seq,
            pack=pack.pack,
            pack_index=pack.pack_index,
        )
        self._put(own, after)
        self._note_commits(own, commits)
        return after

    def drop(self, agent_id: AgentId) -> None:
        """Delete all commits of an agent, so that they are built anew from the store. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        before = self.history(agent_id)
        self._run("DELETE FROM memory_packs WHERE agent_id = :agent_id", agent_id=own)
        self._run("UPDATE memory_commits SET hash = '' WHERE agent_id = :agent_id", agent_id=own)
        if before.seq:
            self._put(own, GitHistory(agent_id=agent_id, generation=before.generation + 1, seq=before.seq + 1))

    def _put(self, own: OwnId, history: GitHistory) -> None:
        """Store where the commits of an agent stand."""
        entries = {path: [one.kind, one.thing, one.version, one.digest] for path, one in history.entries.items()}
        self._run("DELETE FROM memory_histories WHERE agent_id = :agent_id", agent_id=own)
        self._run(
            row_format.insert_into("memory_histories", "agent_id, generation, seq, head, entries, forgotten"),
            agent_id=own,
            generation=history.generation,
            seq=history.seq,
            head=history.head,
            entries=row_format.dump({"entries": entries, "left": dict(history.left)}),
            forgotten=history.forgotten,
        )

    def _note_commits(self, own: OwnId, hashes: Mapping[tuple[str, int], tuple[str, str]]) -> None:
        """Note which commit each version is."""
        self._db.run_many(
            row_format.insert_into("memory_commits", "agent_id, thing, version, hash, reason")
            + " ON CONFLICT (agent_id, thing, version) DO UPDATE SET hash = excluded.hash, reason ="
            " CASE WHEN excluded.reason = '' THEN memory_commits.reason ELSE excluded.reason END",
            [
                {"agent_id": own, "thing": thing, "version": version, "hash": hash, "reason": row_format.storable(why)}
                for (thing, version), (hash, why) in hashes.items()
            ],
        )

    def commits(self, agent_id: AgentId) -> Mapping[tuple[str, int], tuple[str, str]]:
        """(thing, version) -> (hash, reason) of the versions that have a commit, or that a push has written."""
        sql = f"SELECT thing, version, hash, reason FROM memory_commits WHERE agent_id = :agent_id AND {OWN_AGENT}"
        rows = self._rows(sql, agent_id=agent_id)
        return {(thing, version): (hash, row_format.restore(reason)) for thing, version, hash, reason in rows}

    def reasons(self, thing: str, versions: Sequence[int]) -> Mapping[int, str]:
        """Return version of a block -> message of the push that wrote it; other versions are left out."""
        sql = (
            "SELECT c.version, c.reason FROM memory_commits c JOIN agents a ON a.id = c.agent_id"
            " WHERE {keys} AND c.thing = :thing AND c.reason <> '' AND a.org_id = :org_id"
        )
        found = self._rows_of_each(sql, "c.version", versions, thing=thing)
        return {version: row_format.restore(rows[0][0]) for version, rows in found.items() if rows}

    def put_file(self, agent_id: AgentId, path: str, text: str | None, *, by: str, at: datetime) -> None:
        """Keep a Markdown file; None: no longer. Raises: NotFound."""
        own = {"agent_id": own_agent(self._db, self._org_id, agent_id), "path": row_format.stored_key(path)}
        self._run("DELETE FROM memory_files WHERE agent_id = :agent_id AND path = :path", **own)
        if text is not None:
            number = self._next("memory_files", "number", agent_id=own["agent_id"])
            values = {"text": row_format.storable(text), "changed_at": row_format.iso(at), "author_id": by}
            self._run(
                row_format.insert_into("memory_files", "agent_id, number, path, text, changed_at, author_id"),
                number=number,
                **own,
                **values,
            )

    def files(self, agent_id: AgentId) -> Mapping[str, tuple[str, datetime, str]]:
        """Path -> (text, time of its last change, its author) of the kept files."""
        sql = f"SELECT path, text, changed_at, author_id FROM memory_files WHERE agent_id = :agent_id AND {OWN_AGENT}"
        return {
            row_format.restore(path): (row_format.restore(text), row_format.from_iso(at), by)
            for path, text, at, by in self._rows(f"{sql} ORDER BY path", agent_id=agent_id)
        }


async def drop_history(ports: Ports, table: str, owner_id: str) -> None:
    """Drop all commits of an agent from which a text was erased: they hold it. The next reader makes new ones."""
    if table == "memory_files":
        await ports.store.write(lambda tx: tx.of(MemoryGit).drop(AgentId(owner_id)))


def version_reasons(tx: Tx, block_id: BlockId, versions: Sequence[int]) -> Mapping[int, str]:
    """Version of a block -> the message of the commit by which a push wrote it."""
    return tx.of(MemoryGit).reasons(block_id, versions)
