"""The languages of dates: tables of words, and rules, from `languages.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """Tables and rules of one language.

    Args:
        tables: category -> word -> value, both as text.
        rules: (kind, values of groups that the pattern leaves out, pattern).
        signs: for a language without spaces, characters of which one is in each of its dates.
        digits: pattern of a number that is no word.
    """

    tables: Mapping[str, Mapping[str, str]]
    rules: tuple[tuple[str, Mapping[str, str], str], ...]
    signs: frozenset[str]
    digits: str


def _load() -> dict[str, Language]:
    """Load the file. Returns: name -> language."""
    data = tomllib.loads(Path(__file__).with_name("languages.toml").read_text(encoding="utf-8"))
    shared = data.pop("shared")
    languages = {}
    for name, entry in data.items():
        text = entry["rules"]
        for part, lines in shared.items():
            text = text.replace(f"@{part}\n", lines)
        rules = []
        for line in text.splitlines():
            kind, pattern = line.split(" | ", 1)
            rule_name, *values = kind.split()
            rules.append((rule_name, dict(value.split("=") for value in values), pattern))
        tables = {category: _table(rows) for category, rows in entry.get("tables", {}).items()}
        signs, digits = frozenset(entry.get("signs", "")), entry.get("digits", "[0-9]{1,4}")
        languages[name] = Language(tables, tuple(rules), signs, digits)
    return languages


def _table(text: str) -> dict[str, str]:
    """Parse "value: words; value: words"; "5.. words" numbers the words from 5 on."""
    found: dict[str, str] = {}
    for row in " ".join(text.split()).split("; "):
        value, _, words = row.rpartition(": ")
        if ".. " in row:
            first, words = row.split(".. ")
            slots = enumerate(words.split(), int(first))
            found |= {word: str(number) for number, slot in slots for word in slot.split("/")}
        else:
            found |= dict.fromkeys(words.split(), value)
    return {word.replace("_", " "): value for word, value in found.items()}


LANGUAGES = tuple(_load().values())
"""The languages, and first the digits that all of them use."""
