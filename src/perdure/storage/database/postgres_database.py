"""One connection to PostgreSQL, as `Tx` needs it."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from perdure.core.text.words import Clause
from perdure.storage.database.base import FullText, WordRows
from perdure.storage.database.row_format import Row, storable

TSVECTOR_BYTES = 900_000
TOPIC_CHARS = 100

# It waits for a transaction that writes the same slot, but not for ever: one whose machine has vanished stays open.
_MARK = (
    "INSERT INTO commit_marks (slot, token, made_at) SELECT %(slot)s, %(token)s, EXTRACT(EPOCH FROM now())"
    " FROM set_config('lock_timeout', '30s', true)"
    " ON CONFLICT (slot) DO UPDATE SET token = {}, made_at = EXCLUDED.made_at RETURNING token"
)
SET_MARK, READ_MARK = _MARK.format("EXCLUDED.token").encode(), _MARK.format("commit_marks.token").encode()
"""Set the token of a slot; return the one that it has, or else the given one. Both take `slot` and `token`."""
_SELECT = re.compile(rb"\s*(SELECT|EXPLAIN)\b").match
_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


@functools.lru_cache(maxsize=1024)
def _pyformat(sql: str) -> bytes:
    """The statement with `%(name)s` for `:name`."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")).encode()


class PostgresDatabase:
    """One connection, as `Tx` needs it.

    After `begin` it queues statements without a result, and sends them with the next one whose result is needed: a
    round trip to the server costs more than most statements, and lets another thread have the interpreter.
    """

    clustered = ""
    blob = "BYTEA"
    row_key = "BIGINT"
    has_wide = "~ '[０-ｚ]'"

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], *, read_only: bool = False) -> None:
        self._connection, self.read_only, self.queued_texts = connection, read_only, 0
        self.changed_scopes: set[int] = set()
        self.embedding: str | None = None
        self.topics: dict[str, None] = {}
        self.failure: psycopg.Error | None = None
        self._locked: set[tuple[str, str]] = set()
        self.for_update = "" if read_only else " FOR UPDATE"
        self._queue: list[tuple[bytes, Sequence[Mapping[str, Any]]]] = []
        self._is_queueing = False
        self.has_written = False
        """Whether a statement has changed something, or may change something once it is sent."""

    def begin(self) -> None:
        """Begin a transaction, together with the first statement."""
        self._is_queueing = True
        begin = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if self.read_only else b"BEGIN"
        self._queue.append((begin, ({},)))

    def commit(self, mark: Mapping[str, str]) -> str | None:
        """Commit, together with what is queued, and with this `slot` and `token` if anything was written; return what
        the server says it did. Raises: psycopg.Error."""
        if self.has_written and self.failure is None:
            self._queue.append((SET_MARK, (mark,)))
        return self._send(b"COMMIT").statusmessage

    def _send(
        self, query: bytes, params: Mapping[str, Any] | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run what is queued and then this statement, in one round trip; return the cursor of the last."""
        queue, self._queue = self._queue, []
        try:
            with self._connection.pipeline() if queue else contextlib.nullcontext():
                for queued, all_params in queue:
                    self._run_all(queued, all_params)
                cursor = self._connection.execute(query, params, binary=binary)
            self.has_written |= cursor.rowcount != 0 and not (self.read_only or _SELECT(query))
            return cursor
        except psycopg.Error as error:  # the unit may catch it, but its transaction has failed
            self.failure = self.failure or error
            raise

    def _run_all(self, query: bytes, all_params: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for each set of parameters, at least one."""
        if len(all_params) == 1:  # `executemany` waits for the server twice
            self._connection.execute(query, all_params[0])
        else:
            self._connection.cursor().executemany(query, all_params)

    def signal(self, topic: str) -> None:
        """Send the topic with the commit, if it is short enough."""
        if len(topic) <= TOPIC_CHARS and "," not in topic:
            self.topics[topic] = None

    def is_settled(self, number: int) -> bool:
        """Whether what this transaction reads of a scope's vectors is committed and of one moment."""
        return self.read_only  # where a transaction may write, each read sees later commits

    def lock(self, table: str, id_: str) -> None:
        """Lock the row, once in a transaction that writes."""
        if not self.read_only and (table, id_) not in self._locked:
            self._locked.add((table, id_))
            self.run(f"SELECT 1 FROM {table} WHERE id = :id FOR UPDATE", {"id": storable(id_)})

    def by_index(self, name: str) -> str:
        return ""  # the server chooses by its statistics

    def on_conflict(self, table: str, column: str) -> str:
        return f"ON CONFLICT ON CONSTRAINT {table}_pkey"  # a distributed table's key has more columns than this one

    def in_numbers(self, column: str, name: str, values: Sequence[int]) -> tuple[str, dict[str, Any]]:
        """Return the condition that a column is one of many numbers, and its parameter."""
        return f"{column} = ANY(CAST(:{name} AS BIGINT[]))", {name: list(values)}

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        return self._send(_pyformat(sql), params).fetchall()

    def rows_of_bytes(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        return self._send(_pyformat(sql), params, binary=True).fetchall()

    def concat(self, column: str, by: str = "") -> str:
        return f"string_agg(CAST({column} AS TEXT), ','{f' ORDER BY {by}' if by else ''})"

    def concat_bytes(self, column: str, by: str) -> str:
        return f"string_agg({column}, CAST('' AS BYTEA) ORDER BY {by})"

    def run(self, sql: str, params: Mapping[str, Any]) -> None:
        self.run_many(sql, (params,))

    def run_counted(self, sql: str, params: Mapping[str, Any]) -> int:
        return self._send(_pyformat(sql), params).rowcount

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each set of parameters, or queue it."""
        if params and self._is_queueing:
            self.has_written |= not (self.read_only or _SELECT(_pyformat(sql)))
            self._queue.append((_pyformat(sql), params))
        elif params:
            self._run_all(_pyformat(sql), params)

    def full_text_table(self, table: str) -> None:
        self.run(
            f"CREATE TABLE {table} (number BIGINT NOT NULL, seq BIGINT NOT NULL, label TEXT NOT NULL,"
            " words TSVECTOR NOT NULL, PRIMARY KEY (number, seq))",
            {},
        )
        self.run(f"CREATE INDEX {table}_by_word ON {table} USING GIN (words)", {})

    def index_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add the words of texts to a full-text index."""
        self.run_many(
            f"INSERT INTO {table} (number, seq, label, words) VALUES (:number, :seq, :label, CAST(:words AS tsvector))",
            [{"number": number, "seq": seq, "label": label, "words": _tsvector(words)} for seq, label, words in rows],
        )

    def unindex_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Remove texts from a full-text index."""
        self.run_many(
            f"DELETE FROM {table} WHERE number = :number AND seq = :seq",
            [{"number": number, "seq": seq} for seq, _, _ in rows],
        )

    def merge_words(self, table: str, *, begin: bool) -> bool:
        """Do nothing, and say that nothing is left to merge."""
        return False  # rows are removed with their words; `scrub` writes the index anew

    removes_by_number = True

    def index_marks(self, table: str, number: int, first: int, last: int) -> dict[int, Any]:
        """Return number of a text -> the fingerprint of its index row."""
        rows = self.rows(
            f"SELECT seq, label, length(words) FROM {table} WHERE number = :number AND seq BETWEEN :first AND :last",
            {"number": number, "first": first, "last": last},
        )
        return {row[0]: (row[1], row[2]) for row in rows}

    def index_mark(self, number: int, label: str, words: str) -> Any:
        """Return the fingerprint that the index row of a text should have."""
        return label, len({word.rpartition(":")[0] for word in _tsvector(words).split(" ") if word})

    def integrity(self) -> Sequence[str]:
        return ()  # no faults are looked for: `amcheck`, which finds them, needs an administrator's rights

    def full_text(self, rows: WordRows, clauses: Sequence[Clause]) -> FullText:
        match = " & ".join(
            "("
            + (" | " if clause.either else " <-> ").join(f"'{token}'" for token in clause.tokens)
            + (":*" if clause.prefix else "")
            + ")"
            for clause in clauses
        )
        listed = ", ".join(f"'{label}'" for label in rows.labels)
        labelled = f" AND string_to_array(w.label, ' ') {'@>' if rows.all_labels else '&&'} ARRAY[{listed}]"
        return FullText(
            source=f"{rows.table} w",
            key="w.seq",
            where="w.number = :w_number AND w.words @@ CAST(:w_match AS tsquery)"
            + (labelled if rows.labels else "")
            + ("" if rows.below is None else f" AND w.seq < {int(rows.below)}"),
            order="w.seq",
            params={"w_number": rows.number, "w_match": match},
        )


def _tsvector(words: str) -> str:
    """The words as a tsvector literal with positions.

    PostgreSQL's parser would split words again and drop symbols. A tsvector holds at most 1 MB, so only the beginning
    of a longer text is indexed.
    """
    literal: list[str] = []
    size, seen = 0, set[str]()
    for position, word in enumerate(filter(None, words.split(" ")), start=1):  # a text may have no words
        size += 4 + (0 if word in seen else len(word.encode()))
        if size > TSVECTOR_BYTES:
            break
        seen.add(word)
        literal.append(f"'{word}':{min(position, 16_383)}")
    return " ".join(literal)
