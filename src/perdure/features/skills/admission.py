"""What may enter each layer: the rules of `admission.toml`, and the check of an entry by them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.ids import RunId
from perdure.core.sources import Source
from perdure.core.text.credentials import without_credentials
from perdure.core.text.forms import plain_form
from perdure.core.text.tables import read_table
from perdure.features.plugins.definitions import is_name
from perdure.features.skills.values import BY_A_PERSON, Evidence, Layer


class AdmissionRefused(InvalidInput):
    """A rule refuses an entry. Nothing was written. `rule`: its name in `admission.toml`."""

    def __init__(self, rule: Rule, why: str) -> None:
        super().__init__(f"refused by the rule {rule.name!r}: {why}. {rule.says} {rule.helps}")
        self.rule = rule.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillLayer:
    """What a layer is for. `limit_chars`: of an entry; `most`: how many entries an agent may have; 0: none."""

    name: str
    holds: str
    written_by: str
    limit_chars: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Args:
        says: what may enter these layers.
        helps: what to do where it refuses.
        people: whether it holds for what a person writes, too.
        patterns: what no entry may contain.
    """

    name: str
    layers: Sequence[str]
    says: str
    helps: str
    people: bool = False
    patterns: Sequence[re.Pattern[str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """What is to be written.

    Args:
        description: empty: that of the entry of this name, or else the first line of the text.
        evidence: what confirms it; by default its writer, who is a person. None: nothing does, and `doubt` says why.
        written_by: "agent", or the id of a person.
        sources: what it may come from beside the agent and its user.
        is_protected: whether the entry that it changes is.
        has_file, is_tool: whether a skill with a file, and a tool of the engine or the agent, has its name.
        count: how many other entries its layer has.
    """

    layer: Layer
    name: str
    text: str
    description: str = ""
    evidence: Evidence | None = BY_A_PERSON
    doubt: str = ""
    written_by: str
    run_id: RunId | None = None
    sources: Sequence[Source] = ()
    is_protected: bool = False
    has_file: bool = False
    is_tool: bool = False
    count: int = 0

    @property
    def by_person(self) -> bool:
        """Whether a person writes it."""
        return self.written_by != "agent"


@functools.cache
def layers() -> Mapping[str, SkillLayer]:
    """The layers by their short names."""
    return {name: SkillLayer(**table) for name, table in _tables()["layers"].items()}


@functools.cache
def rules() -> Sequence[Rule]:
    """The rules, in the order in which they are checked."""
    return [
        Rule(name=name, patterns=[re.compile(one) for one in table.pop("patterns", ())], **table)
        for name, table in _tables()["rules"].items()
    ]


@functools.cache
def constitution() -> str:
    """The text of L0: the layers, and what may enter each."""
    lines = [f"- {key} {one.name}: {one.holds}. Written by {one.written_by}." for key, one in layers().items()]
    lines += [f"- {rule.name} ({', '.join(rule.layers)}): {rule.says}" for rule in rules()]
    return "\n".join(["What you keep about your work, in layers, and the rules that say what may enter each:", *lines])


def admit(entry: NewEntry) -> None:
    """Check an entry by all rules of its layer. Raises: AdmissionRefused, by the first one that it breaks."""
    for rule in rules():
        if (
            entry.layer in rule.layers
            and (rule.people or not entry.by_person)
            and (why := _CHECKS[rule.name](entry, rule))
        ):
            raise AdmissionRefused(rule, why)


def _tables() -> dict[str, Any]:
    """The tables of the file."""
    return read_table(__file__, "admission.toml")


def _bad_name(entry: NewEntry) -> str:
    """Why the name can't be used; empty: it can."""
    if not is_name(entry.name):
        return f"the name is {entry.name!r:.80}"
    if entry.is_tool:
        return f"{entry.name!r} is the name of a tool"
    return f"{entry.name!r} is a skill that has a file" if entry.has_file else ""


def _bad_size(entry: NewEntry) -> str:
    """Return why the entry is too large; empty: it is not."""
    use, size = layers()[entry.layer], len(entry.text) + len(entry.description)
    if not entry.text.strip():
        return "the text is empty"
    if size > use.limit_chars:
        return f"it has {size:,} characters, the limit of {entry.layer} is {use.limit_chars:,}"
    return f"there are {entry.count} entries in {entry.layer}, the limit" if entry.count >= use.most else ""


def _has_credential(entry: NewEntry) -> str:
    """Where it holds a credential; empty: nowhere."""
    parts = {"text": entry.text, "description": entry.description, "name": entry.name}
    texts = ((part, text) for part, own in parts.items() for text in {own, plain_form(own)})
    found = next((part for part, text in texts if without_credentials(text) != text), "")
    return f"the {found} holds what looks like a credential" if found else ""


def _match(entry: NewEntry, rule: Rule) -> str:
    """What it contains that the rule's patterns forbid; empty: nothing."""
    for pattern in rule.patterns:
        if (found := pattern.search(plain_form(f"{entry.description}\n{entry.text}"))) is not None:
            return f"it says {found[0]!r:.80}"
    return ""


_CHECKS: Mapping[str, Callable[[NewEntry, Rule], str]] = {
    "a_persons_layer": lambda entry, rule: f"{entry.layer} is not written like this",
    "made_by_perdure": lambda entry, rule: f"nobody writes {entry.layer}",
    "named": lambda entry, rule: _bad_name(entry),
    "sized": lambda entry, rule: _bad_size(entry),
    "protected": lambda entry, rule: f"{entry.name!r} is protected" if entry.is_protected else "",
    "confirmed": lambda entry, rule: "" if entry.evidence is not None else entry.doubt or "nothing confirms it",
    "no_credential": lambda entry, rule: _has_credential(entry),
    "lasting": _match,
    "lasting_fact": _match,
}
"""Name of a rule -> what says why an entry breaks it; empty: it does not."""
