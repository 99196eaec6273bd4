"""`tx.of(TextMentions)`: the rows in which a text stands, and taking it out of them where they are.

Logs, recorded requests and old versions never change but here: a text that is erased is replaced in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.features import Point, TextUse, find_features
from perdure.core.forgetting.corrections import Key, Place
from perdure.core.forgetting.redaction import NO_RELATION, REDACTED, Redactor
from perdure.core.ids import AgentId, OrgId
from perdure.core.messages import is_embedded
from perdure.features.origins.values import MatchedRow, MatchedRowPage
from perdure.storage.database import full_text as word_index
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row, restore, storable
from perdure.storage.tables.blocks import VERSION_CHECKSUMS
from perdure.storage.tables.message_rows import MESSAGE_CHECKSUMS, REVISION_CHECKSUMS, read_rows
from perdure.storage.tables.messages import indexed_words_of
from perdure.storage.tables.sources import OWNERS
from perdure.storage.tables.table import OWN_AGENT, Table, first
from perdure.storage.tables.turns import PART
from perdure.storage.tables.vectors import forget_texts, queue_texts

_REDACTED_TOKENS = 8
"""At most how many tokens a message takes more for each text that was taken out."""


def _table(place: Place, owners: str, owner: str, key: str, texts: str, *, wide: bool = False) -> TextUse:
    """Describe a table with texts. Its name is its key in `TEXT_TABLES`; `key` and `texts` are names of columns."""
    return TextUse(name="", place=place, owners=owners, owner=owner, key=key.split(), texts=texts.split(), is_wide=wide)


def _agent_table(place: Place, key: str, texts: str, owner: str = "agent_id", *, wide: bool = False) -> TextUse:
    return _table(place, "agents", owner, key, texts, wide=wide)


def _feature_tables(*, agents: bool) -> Mapping[str, TextUse]:
    """The tables with texts that features declare, by name: those of agents, or of other owners."""
    found = [table for feature in find_features() for table in feature.text_tables]
    return {one.name: one for one in found if (one.owners == "agents") == agents}


_IDENTITIES = "id IN (SELECT identity_id FROM agent_identities WHERE agent_id = :owner)"
_BATCHES = "id IN (SELECT r.batch_id FROM runs r WHERE r.agent_id = :owner)"
_OWNERS = f"owner_id IN ({OWNERS.format(agent=':owner', own='')})"

TEXT_TABLES: Mapping[str, TextUse] = {
    "blocks": _table("block", "blocks", "id", "", "value description metadata tags"),
    "block_versions": _table("block_version", "blocks", "block_id", "version", "value diff"),
    "passages": _table("passage", "archives", "archive_id", "seq", "text tags metadata source"),
    "archives": _table("settings", "archives", "id", "", "description metadata"),
    **_feature_tables(agents=False),
    "messages": _agent_table("message", "seq", "parts name otid"),
    "message_revisions": _agent_table("earlier_message", "seq revision", "parts name"),
    "summary_nodes": _agent_table("summary", "conversation_seq seq", "text rejected"),
    "conversations": _agent_table("settings", "seq", "summary settings"),
    "identities": _agent_table("settings", "id", "properties", _IDENTITIES),
    "batches": _agent_table("request", "id", "callback", _BATCHES),
    "agent_details": _agent_table("settings", "", "system description tags metadata settings"),
    "agent_revisions": _agent_table("settings", "revision", "system settings"),
    "client_tools": _agent_table("settings", "digest", "tools"),
    "runs": _agent_table("request", "seq", "failure waiting_input answer hook_context options callback"),
    "steps": _agent_table("request", "run_seq step_index", "recipe failure tags"),
    "step_exchanges": _agent_table("request", "run_seq step_index", "request response", wide=True),
    "prefixes": _agent_table("request", "seq", "system tools opening summary", wide=True),
    "system_messages": _agent_table("request", "conversation_seq", "text", wide=True),
    "events": _agent_table("event", "run_seq seq", "body"),
    **_feature_tables(agents=True),
    "message_sources": _agent_table("source", "conversation_seq seq place", "name"),
    "memory_sources": _agent_table("source", "owner_id ref place", "name", _OWNERS),
    "corrections": _agent_table("correction", "number", "text"),
    "correction_items": _agent_table("correction", "number seq", "before"),
}
"""Every table with texts of users, models and tools, in the order in which they are looked through. Names, labels, ids
and secrets are no such texts."""

_CHECKSUMS = {one.table: one for one in (VERSION_CHECKSUMS, MESSAGE_CHECKSUMS, REVISION_CHECKSUMS)}
_SUMMARIES = {"summary_nodes": "text", "prefixes": "summary", "correction_items": "before"}
"""Table -> its column of summaries, whose sentences may say the same in other words."""
_RECORDS = frozenset(
    {"answer", "body", "callback", "dropped", "failure", "input", "messages", "options", "origin", "plan", "properties"}
    | {"recipe", "request", "response", "source", "tools", "waiting_input"}
)
"""The columns with JSON in a format of the store, beside `parts`."""
_COMPACTION = '"type":"compaction"'
"""What the parts of a message about a compaction hold; its text is a summary."""


REDACTED_ROWS: Point[[Database, OrgId, str, str], Mapping[str, int]] = Point("redacted_rows")
"""Values that rows of this table and owner get beside, as a text is taken out of them."""


class TextMentions(Table):
    """Finds a text in the rows of all tables with texts, and takes it out of them."""

    def scan(
        self, table: str, owner_id: str, redactor: Redactor, *, after: Key | None = None, limit: int = 500
    ) -> MatchedRowPage:
        """Read the next `limit` rows of an owner (a tenth for wide tables), and return those that contain the text."""
        use = TEXT_TABLES[table]
        own = f"{use.of_owner} AND EXISTS (SELECT 1 FROM {use.owners} WHERE id = :owner AND org_id = :org_id)"
        params: dict[str, Any] = {"owner": storable(owner_id), "like": redactor.like}
        key = ", ".join(use.key)
        last: Key | None = None
        if use.key:
            if after is not None:
                own += f" AND ({key}) > ({', '.join(f':after{place}' for place in range(len(use.key)))})"
                params |= {f"after{place}": value for place, value in enumerate(after)}
            ordered = f"SELECT {key} FROM {table} WHERE {own} ORDER BY {key} LIMIT 1 OFFSET :offset"
            rows = self._rows(ordered, offset=max(1, limit // 10 if use.is_wide else limit) - 1, **params)
            if rows:
                last = tuple(rows[0])
                own += f" AND ({key}) <= ({', '.join(f':last{place}' for place in range(len(use.key)))})"
                params |= {f"last{place}": value for place, value in enumerate(last)}
        ways = ("LOWER({0}) LIKE :like", "LOWER({0}) LIKE '%uff%'", f"{{0}} {self._db.has_wide}")
        matches = " OR ".join(way.format(column) for column in use.texts for way in ways)
        if table in _SUMMARIES:
            matches = "1 = 1"
        elif table in ("messages", "message_revisions"):
            matches += f" OR parts LIKE '%{_COMPACTION}%'"
        sql = f"SELECT {', '.join((*use.key, *use.texts))} FROM {table} WHERE {own} AND ({matches})"
        sql += f" ORDER BY {key}" if key else ""
        found = [_texts_of_row(use, row) for row in self._rows(sql, **params)]
        return MatchedRowPage([one for one in found if _holds(table, one, redactor)], last)

    def redact(self, table: str, owner_id: str, redactor: Redactor, found: Sequence[MatchedRow]) -> None:
        """Take the text out of rows that were found; their checksums, words of search and vectors are renewed."""
        use = TEXT_TABLES[table]
        stamp: dict[str, int] = {}
        if found:
            for columns in REDACTED_ROWS(self._db, self._org_id, table, owner_id):
                stamp |= columns
        for row in found:
            seqs = [int(row.key[0])] if table in ("messages", "message_revisions") else []
            words = self._indexed_words(owner_id, seqs)
            changes = {name: _redacted(table, name, text, redactor) for name, text in row.texts.items()}
            changed = {name: storable(text) for name, text in changes.items() if text != row.texts[name]}
            self._update(table, use, owner_id, row.key, changed, stamp)
            self._reindex(owner_id, seqs, words)

    def name_of(self, table: str, owner_id: str) -> str:
        """The name of what owns the rows of a table. Raises: NotFound."""
        sql = f"SELECT name FROM {TEXT_TABLES[table].owners} WHERE id = :id AND org_id = :org_id"
        return restore(str(first(self._rows(sql, id=storable(owner_id)), TEXT_TABLES[table].place, owner_id)[0]))

    def revise_settings(self, agent_id: AgentId) -> None:
        """Count the agent's settings as changed, so that its next request begins with a new prefix."""
        sql = "UPDATE agents SET settings_revision = settings_revision + 1 WHERE id = :id AND org_id = :org_id"
        self._run(sql, id=agent_id)

    def find_unended_run(self, agent_id: AgentId) -> str | None:
        """The id of a run of the agent that has not ended."""
        found: str | None = self._value(
            "SELECT r.id FROM conversations c JOIN runs r ON r.conversation_id = c.id"
            f" WHERE c.agent_id = :agent_id AND {OWN_AGENT} AND r.status IN ('queued', 'running') LIMIT 1",
            agent_id=agent_id,
        )
        return found

    def drop_deltas(self, agent_id: str) -> None:
        """Remove previews of answers, which may hold the text in pieces; a run's last event stays, to count from."""
        self._run(
            "DELETE FROM events WHERE agent_id = :agent_id AND type = 'delta.streamed' AND seq < (SELECT MAX(n.seq)"
            " FROM events n WHERE n.agent_id = events.agent_id AND n.run_seq = events.run_seq)"
            " AND EXISTS (SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id)",
            agent_id=agent_id,
        )

    def _update(
        self, table: str, use: TextUse, owner_id: str, key: Key, changed: Mapping[str, str], stamp: Mapping[str, int]
    ) -> None:
        """Store the `changed` texts of a row, its checksum, and the columns of `stamp`, which mark it as changed."""
        where = " AND ".join((use.of_owner, *(f"{name} = :key_{name}" for name in use.key)))
        params: dict[str, Any] = {"owner": owner_id, **{f"key_{n}": v for n, v in zip(use.key, key, strict=True)}}
        values = ", ".join(f"{name} = :{name}" for name in (*changed, *stamp))
        if table == "messages":
            values += f", tokens = tokens + {_REDACTED_TOKENS * ''.join(changed.values()).count(REDACTED)}"
        self._db.run(f"UPDATE {table} SET {values} WHERE {where}", {**params, **changed, **stamp})
        if (checksums := _CHECKSUMS.get(table)) is not None:
            columns = checksums.columns
            (row,) = self._db.rows(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", params)
            checksum = checksums.of(dict(zip(columns, row, strict=True)))
            self._db.run(f"UPDATE {table} SET checksum = :checksum WHERE {where}", params | {"checksum": checksum})

    def _indexed_words(self, agent_id: str, seqs: Sequence[int]) -> list[tuple[int, str, str]]:
        return [row for seq in seqs for row in indexed_words_of(self._db, AgentId(agent_id), seq, seq)]

    def _reindex(self, agent_id: str, seqs: Sequence[int], words: Sequence[tuple[int, str, str]]) -> None:
        """Renew the words of messages that have changed, which were these, and their vectors."""
        after = self._indexed_words(agent_id, seqs)
        if not seqs:
            return
        parts = [{"agent_id": agent_id, "part": part} for part in {seq // PART for seq in seqs}]  # they name who spoke
        self._db.run_many("DELETE FROM turns WHERE agent_id = :agent_id AND part = :part", parts)
        number, embedded = self._db.rows("SELECT number, embedded FROM agents WHERE id = :id", {"id": agent_id})[0]
        if after != list(words):
            word_index.unindex_words(self._db, "message_words", number, words)
            word_index.index_words(self._db, "message_words", number, after)
        if embedded:
            forget_texts(self._db, number, seqs)
            where = "agent_id = :agent_id AND seq = :seq AND removed = 0 AND kind = 'message'"
            messages = [row for seq in seqs for row in read_rows(self._db, where, {"agent_id": agent_id, "seq": seq})]
            queue_texts(self._db, number, [message.seq for message in messages if is_embedded(message)])


def _texts_of_row(use: TextUse, row: Row) -> MatchedRow:
    """Return a row as the use of texts that it is."""
    texts = zip(use.texts, row[len(use.key) :], strict=True)
    return MatchedRow(tuple(row[: len(use.key)]), {name: restore(text) for name, text in texts if text is not None})


def _holds(table: str, found: MatchedRow, redactor: Redactor) -> bool:
    """Whether a row contains the text, or is a summary that says the same."""
    return any(_redacted(table, name, text, redactor) != text for name, text in found.texts.items())


def _redacted(table: str, column: str, text: str, redactor: Redactor) -> str:
    """Return the value of a column without the text to erase, in the way that its format needs."""
    if _SUMMARIES.get(table) == column:
        return redactor.redact_summary(text)
    if column == "parts":
        return redactor.redact_parts(text)
    if column == "settings":
        return redactor.redact_settings(text)
    if column == "relation":
        return NO_RELATION if redactor.finds(text) else text
    return redactor.redact_record(text) if column in _RECORDS else redactor.redact(text)
