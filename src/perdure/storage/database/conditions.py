"""The conditions of a statement, with their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from perdure.core.errors import InvalidInput
from perdure.storage.database.row_format import dump, storable

PATTERN_BYTES = 40_000
"""The size limit of a pattern; SQLite's own is 50,000 bytes."""


class NumberWindow(TypedDict, total=False):
    """A page of rows with numbers between `above` and `below` (excluded), in order or `newest_first`."""

    above: int | None
    below: int | None
    newest_first: bool
    limit: int


class Conditions:
    """Conditions that must all hold. As a text they are SQL, joined by AND; `params` are the values that they name."""

    def __init__(self, *clauses: str, **params: Any) -> None:
        self.clauses, self.params = list(clauses), params

    def __str__(self) -> str:
        return " AND ".join(self.clauses) or "1 = 1"

    def add(self, clause: str, *values: Any) -> None:
        """Add a condition, SQL with a `?` for each of these values. If one is None, add nothing."""
        if any(value is None for value in values):
            return
        for value in values:
            name = f"w{len(self.params)}"
            self.params[name] = value
            clause = clause.replace("?", f":{name}", 1)
        self.clauses.append(clause)

    def equal(self, column: str, value: str | int | None) -> None:
        """Require that a column has this value; None requires nothing."""
        self.add(f"{column} = ?", _column_value(value))

    def among(self, column: str, values: Sequence[str | int] | None, *, negate: bool = False) -> None:
        """Require that a column has one of these values, or with `negate` none of them; None requires nothing."""
        if values is None:
            return
        listed = [_column_value(value) for value in dict.fromkeys(values)]
        if listed:
            self.add(f"{column} {'NOT ' if negate else ''}IN ({', '.join('?' * len(listed))})", *listed)
        elif not negate:
            self.add("1 = 0")

    def any_of(self, clause: str, keys: Sequence[tuple[str | int, ...]]) -> None:
        """Require that the clause is true for one of these keys, whose values replace its `?`."""
        values = [_column_value(value) for key in keys for value in key]
        self.add(f"({' OR '.join([f'({clause})'] * len(keys))})", *values)

    def between(self, column: str, above: int | None, below: int | None) -> None:
        """Require that a column is between two numbers, both excluded; None: no bound."""
        self.add(f"{column} > ?", above)
        self.add(f"{column} < ?", below)

    def window(self, column: str, window: NumberWindow) -> str:
        """Require that a column, the rows' number, is in a window, and return the ORDER BY with the LIMIT."""
        self.between(column, window.get("above"), window.get("below"))
        self.params["limit"] = window.get("limit", 100)
        return f"ORDER BY {column} {'DESC' if window.get('newest_first') else 'ASC'} LIMIT :limit"

    def contain(self, column: str, text: str | None) -> None:
        """Require that a column contains a text, in any case; none if empty. Raises: InvalidInput: it is too long."""
        if not text:
            return
        escaped = _escaped(storable(text))
        # PostgreSQL may not know the lower case of every script, so the exact text matches too.
        lower = "REPLACE(LOWER({}), 'ς', 'σ')" if {"σ", "ς", "Σ"}.intersection(text) else "LOWER({})"
        clause = f"({lower.format(column)} LIKE {lower.format('?')} ESCAPE '!' OR {column} LIKE ? ESCAPE '!')"
        self.add(clause, f"%{escaped}%", f"%{escaped}%")

    def hold(self, column: str, members: Sequence[tuple[str, str, str]]) -> None:
        """Require that a column, a JSON object, has all these members: (name of an object in it, name in that, value).
        All text behind the beginning of that object is searched, so it should be the last one of the column."""
        for member, name, value in members:
            text = dump({name: value})[1:-1]
            pattern = f'%"{_escaped(member)}":{{%{_escaped(text)}%'
            # LIKE ignores case on SQLite, REPLACE does not.
            self.add(f"({column} LIKE ? ESCAPE '!' AND REPLACE({column}, ?, '') <> {column})", pattern, text)

    def have_tags(self, column: str, tags: Sequence[str], *, every: bool) -> None:
        """Require that a column, a JSON list of tags, has one of these, or with `every` all; none require nothing."""
        # A quoted tag occurs only as an element of the list, because quotes within tags are escaped. REPLACE is
        # case-sensitive, LIKE on SQLite is not.
        values = [dump(tag) for tag in dict.fromkeys(tags)]
        clauses = [f"REPLACE({column}, ?, '') <> {column}" for _ in values]
        if clauses:
            self.add(f"({(' AND ' if every else ' OR ').join(clauses)})", *values)

    def page(
        self, columns: Sequence[str], *, ascending: bool, after: Sequence[Any] | None, before: Sequence[Any] | None
    ) -> str:
        """Require rows after `after` and before `before`, given as values of these columns, and return the ORDER BY;
        for `before` alone it is reversed, as the page has to end there."""
        for place, is_behind in ((after, True), (before, False)):
            if place is not None:
                sign = ">" if ascending is is_behind else "<"
                self.add(f"({', '.join(columns)}) {sign} ({', '.join('?' * len(columns))})", *place)
        is_reverse = before is not None and after is None
        direction = "ASC" if ascending is not is_reverse else "DESC"
        return "ORDER BY " + ", ".join(f"{column} {direction}" for column in columns)


def _escaped(text: str) -> str:
    """The text as a part of a pattern. Raises: InvalidInput: too long."""
    escaped = text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    if len(escaped.encode()) > PATTERN_BYTES:
        raise InvalidInput(f"a part of a text to look for has {len(text):,} characters: give a shorter one")
    return escaped


def _column_value(value: str | int | None) -> str | int | None:
    """The value as a column holds it; a bool is stored as 0 or 1."""
    if isinstance(value, str):
        return storable(value)
    return value if value is None else int(value)
