"""Numbers with a unit, such as `100ms`, `1.5 GB`, `2h30m`, `$1.2k` and `45 %`, and which of two is more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from perdure.core.text.tables import read_table
from perdure.features.compression.interest import plain_number

_TABLE = read_table(__file__, "units.toml")
_LARGE = _TABLE.pop("large")
# Unit -> kind -> how much it is.
_UNITS = {
    unit: {kind: Decimal(of[unit]) for kind, of in _TABLE.items() if unit in of}
    for units in _TABLE.values()
    for unit in units
}
_ANY_CASE = {unit.lower(): kinds for unit, kinds in reversed(_UNITS.items())}
_NUMBER = re.compile(r"[+-]?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<before>[$€£¥₹₩₽]|[A-Z]{3})? ?(?P<number>[+-]?\d[\d.,\u00a0 ]*(?:[eE][+-]?\d{1,3})?)"
    r"(?P<unit>[$€£¥₹₩₽%‰°]?[^\W\d_]{0,12}(?:/[^\W\d_]{1,8})?)"
)
_CLOCK = re.compile(
    r"(?P<h>\d{1,9}):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d(?:\.\d{1,9})?))?"
    r"|P(?=T?\d)(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_SECONDS = (3600, 60, 1, 86400, 3600, 60, 1)
_PARTS = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([^\W\d_]{1,7}),? ?")
MOST_CHARS = 80
"""A longer text is no quantity."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with all its digits, and its unit as it was written; empty: it has none."""

    number: Decimal
    unit: str = ""

    def compare(self, other: Quantity) -> int | None:
        """Return 1 if this quantity is larger than the other, -1 if smaller, 0 if equal; None: their units can't be
        compared. Without a unit on one side, the numbers are compared."""
        left, right = self.number, other.number
        if self.unit != other.unit:
            mine, theirs = _kinds(self.unit), _kinds(other.unit)
            kind = next((kind for kind in mine if kind in theirs), None)
            if kind is not None:
                left, right = left * mine[kind], right * theirs[kind]
            elif other.unit:
                return None
        return (left > right) - (left < right)


def parse_quantity(text: str) -> Quantity | None:
    """Return the quantity that a text states, such as `1.5 GB`, `2h30m` or `$1.2k`; None: it is none."""
    if _NUMBER.fullmatch(text):
        return Quantity(Decimal(text))
    text = text.strip().replace("−", "-")
    if len(text) > MOST_CHARS:
        return None
    if clock := _CLOCK.fullmatch(text):
        total = sum(Decimal(number or 0) * each for number, each in zip(clock.groups(), _SECONDS, strict=True))
        return Quantity(Decimal(total), "h:mm" if clock["m"] and not clock["s"] else "h:mm:ss")
    parts = _PARTS.findall(text)
    if len(parts) > 1 and not _PARTS.sub("", text) and all("time" in _kinds(unit) for _, unit in parts):
        return Quantity(sum((Decimal(number) * _kinds(unit)["time"] for number, unit in parts), Decimal()), "s")
    if (found := _QUANTITY.fullmatch(text)) is None:
        return None
    number = plain_number(found["sign"] + found["number"].strip())
    factor = _LARGE.get(found["unit"].lower()) if found["before"] and found["unit"] else 1
    unit = found["before"] or found["unit"]
    return None if number is None or factor is None else Quantity(Decimal(number) * Decimal(factor), unit)


def _kinds(unit: str) -> Mapping[str, Decimal]:
    """Return the kinds of a unit, such as `time` -> how much of the kind it is; an unknown unit is its own kind."""
    base, slash, per = unit.partition("/")
    kinds = _UNITS.get(base) or _ANY_CASE.get(base.lower()) or {base: Decimal(1)}
    return {kind + slash + per: factor for kind, factor in kinds.items()} if slash else kinds
