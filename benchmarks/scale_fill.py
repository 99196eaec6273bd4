"""Many agents in a PostgreSQL database, at the price of a few: the engine writes some, and SQL copies their rows.

A copy has ids of its own in all texts, which are as long as those they take the place of, and numbers of its own. So
each row is as large as what the engine writes, and each copy is an agent that can be talked to. Rows of one table lie
in the order of their sequence numbers, agent after agent, as if many agents had been used side by side.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

import psycopg

from perdure import AsyncPerdure
from perdure.settings import Settings
from perdure.storage.distribution import FAMILIES, distributed
from perdure.testing import ScriptedModel, SequentialIds, calls, says

SALT = 0x5CA1AB1E
MODEL = "test/scripted"
TURNS = (1, 2, 3, 4, 5, 6, 9, 18)
"""How many messages the users of the samples have written: few talk much."""
PASSAGES_PER_TURN = 0.5
COPIES_AT_ONCE = 250
NUMBER_STEP = 10_000
"""More than the numbers that the samples take."""
FIRST_FREE_NUMBER = 1_000_000_000
"""The first number of what is created beside the copies."""

_NUMBERED = ("agents", "blocks", "archives", "graphs", "groups", *FAMILIES["vector_scopes"])
_WORDS = 4_000


class _Texts:
    """Texts of words that are as unequally frequent as those of a language."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        letters = "etaoinshrdlu"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(2, 9))) for _ in range(_WORDS)]
        self._weights = [1 / rank for rank in range(1, _WORDS + 1)]

    def text(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, self._weights, k=words)).capitalize() + "."

    def word(self) -> str:
        """A word that is neither frequent nor rare."""
        return self._words[self._random.randint(50, 500)]


_texts = _Texts()


def some_words(count: int) -> str:
    """Words as the samples have them, neither frequent nor rare."""
    return " ".join(_texts.word() for _ in range(count))


async def add_samples(address: str, turns: Sequence[int] = TURNS) -> list[str]:
    """Let the engine write an agent for each number of turns; return their ids."""
    texts = _Texts()
    script = []
    for count in turns:
        for turn in range(count):
            if turn % 3 == 2:
                script.append(calls("archival_memory_insert", content=texts.text(30)))
            if turn % 4 == 3:
                script.append(calls("memory_insert", label="human", new_string=texts.text(8)))
            script.append(says(texts.text(50)))
    model = ScriptedModel(*script)
    settings = Settings(model=MODEL, embedding="none")
    ids: list[str] = []
    async with await AsyncPerdure.open(
        address, models={MODEL: model}, settings=settings, ids=SequentialIds(SALT)
    ) as perdure:
        for index, count in enumerate(turns):
            agent = await perdure.create_agent(
                f"Agent {index}", archival=True, human=texts.text(40), persona=texts.text(60)
            )
            for _ in range(round(count * PASSAGES_PER_TURN)):
                await agent.archive(texts.text(45), tags=["note"])
            for _ in range(count):
                await agent.send(texts.text(20))
            ids.append(agent.id)
    return ids


def keep_samples(address: str) -> None:
    """Put the samples' rows aside, to be copied."""
    with psycopg.connect(address) as connection:
        for table in distributed():
            connection.execute(f"CREATE TABLE sample_{table} AS TABLE {table}".encode())


def drop_samples(address: str) -> None:
    """Remove what `keep_samples` put aside."""
    with psycopg.connect(address) as connection:
        for table in distributed():
            connection.execute(f"DROP TABLE sample_{table}".encode())


def add_copies(address: str, first: int, last: int) -> float:
    """Add the copies of all samples from number `first` to `last`; return the seconds that it took."""
    began = time.perf_counter()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        statements = [_copy_statement(table, columns) for table, columns in _columns(connection).items()]
        for begin in range(first, last + 1, COPIES_AT_ONCE):
            span = {"first": begin, "last": min(last, begin + COPIES_AT_ONCE - 1)}
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode(), span)
        connection.execute("UPDATE counters SET value = GREATEST(value, %s) WHERE name = 'number'", [FIRST_FREE_NUMBER])
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    return time.perf_counter() - began


def copy_of(id_: str, number: int) -> str:
    """The id that a sample's id became in a copy."""
    return id_.replace(f"-{SALT:08x}-", f"-{number:08x}-")


def _columns(connection: psycopg.Connection[tuple[object, ...]]) -> Mapping[str, Mapping[str, str]]:
    """Table -> column -> type, of the tables that have rows of the samples."""
    found: dict[str, dict[str, str]] = {}
    for table in distributed():
        if connection.execute(f"SELECT 1 FROM sample_{table} LIMIT 1".encode()).fetchall():
            rows = connection.execute(
                "SELECT column_name, data_type FROM information_schema.columns"
                " WHERE table_schema = current_schema() AND table_name = %s ORDER BY ordinal_position",
                [table],
            )
            found[table] = {str(name): str(kind) for name, kind in rows}
    return found


def _copy_statement(table: str, columns: Mapping[str, str]) -> str:
    """The statement that copies a table's rows of the samples for the numbers from `first` to `last`."""
    values = [_value(table, name, kind) for name, kind in columns.items()]
    order = next((f" ORDER BY s.{name}, c" for name in ("run_seq", "seq") if name in columns), "")
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM sample_{table} s"
        f" CROSS JOIN generate_series(%(first)s::int, %(last)s::int) c{order}"
    )


def _value(table: str, name: str, kind: str) -> str:
    if name == "id" and table in ("ids", "system_messages"):  # some are made of a hash
        return "regexp_replace(s.id, '-[0-9a-f]{8}-', '-' || lpad(to_hex(c), 8, '0') || '-')"
    if kind == "text":
        return f"replace(s.{name}, '-{SALT:08x}-', '-' || lpad(to_hex(c), 8, '0') || '-')"
    if name == "number" and table in _NUMBERED:
        return f"s.number + c * {NUMBER_STEP}::bigint"
    return f"s.{name}"
