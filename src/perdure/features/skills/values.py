"""Skills that agents and people write, their versions, and how often they were used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.sources import Source
from perdure.core.text.reprs import short_repr
from perdure.features.plugins.frontmatter import FrontmatterInvalid, parse_frontmatter

Layer = Literal["L0", "L1", "L2", "L3", "L4"]
"""The layers of what an agent knows about its work; `admission.toml` says what is in each."""

EvidenceKind = Literal["tool", "user", "person"]
"""What confirms a version: a successful tool result, a message of the user, or the person who wrote it."""

UNUSED_FOR = timedelta(days=90)
"""An entry that was neither used, changed nor restored for so long is archived."""

DESCRIPTION_CHARS = 200
_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<words>[^\n`]*)\n", re.MULTILINE)
"""The first line of a block of code, such as ```` ```python check.py ````."""
_SCRIPT = re.compile(r"[\w-][\w./-]*\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What confirms a version of a skill. `message_id`: the message that shows it; None: its writer is a person."""

    kind: EvidenceKind
    message_id: MessageId | None = None


BY_A_PERSON = Evidence(kind="person")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """An entry of L2 or L3 of an agent, as its newest version has it.

    Args:
        seq: its number among the agent's.
        description: one line that says when it helps.
        version: from 1.
        is_protected: whether only a person changes it.
        archived_at: since when it is in L4; None: it is not.
        fresh_at: when it was last used, changed or restored.
    """

    __repr__ = short_repr("name", "layer", "version")

    agent_id: AgentId
    seq: int = 0
    name: str
    layer: Layer
    description: str
    text: str
    version: int = 1
    is_protected: bool = False
    archived_at: datetime | None = None
    fresh_at: datetime
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillVersion:
    """One version of a skill, with what confirms it.

    Args:
        written_by: "agent", or the id of the person.
        run_id: the run in which the agent wrote it.
        sources: what it may come from beside the agent and its user.
    """

    version: int
    description: str
    text: str
    written_by: str
    run_id: RunId | None = None
    evidence: EvidenceKind
    evidence_id: MessageId | None = None
    sources: tuple[Source, ...] = ()
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChange(SkillVersion):
    """A version, and the unified difference of its text from the version before."""

    diff: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUses:
    """How many runs read a skill, how many of them came to their end, and when one last read it."""

    uses: int = 0
    successes: int = 0
    last_at: datetime | None = None


NO_USES = SkillUses()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillView:
    """A skill as people and searches see it.

    Args:
        layer: L2 or L3; of a skill with a file where that is from, such as `built-in` or `project`, or `client`.
        version: None: it has a file, whose versions nobody keeps.
        path: its file; empty: an agent or person wrote it.
        files: the names of its other files and scripts; only `get` lists them.
    """

    __repr__ = short_repr("name", "layer", "version")

    name: str
    layer: str
    description: str
    text: str = ""
    version: int | None = None
    is_protected: bool = False
    archived_at: datetime | None = None
    changed_at: datetime | None = None
    path: str = ""
    files: tuple[str, ...] = ()
    uses: SkillUses = NO_USES


def describe(text: str, description: str = "") -> str:
    """Return the one-line description of a skill: `description`, else the first non-empty line of its text."""
    lines = (description if description.strip() else text).split("\n")
    line = next((found for one in lines if (found := " ".join(one.strip(" #*-\t\r").split()))), "")
    return line if len(line) <= DESCRIPTION_CHARS else f"{line[: DESCRIPTION_CHARS - 1]}…"


def split_skill(text: str) -> tuple[str, str]:
    """Return (description, text) of a skill that may be a whole file `SKILL.md`; without one the first is empty."""
    with suppress(FrontmatterInvalid):
        if fields := (head := parse_frontmatter(text.strip())).fields:
            return str(fields.get("description") or ""), head.body
    return "", text.strip()


def scripts_in(text: str) -> Mapping[str, str]:
    """Return name -> code of the blocks of code in a skill's text whose first line names a Python file."""
    scripts: dict[str, str] = {}
    for match in _FENCE.finditer(text):
        # The name is the last word: a pattern that looks for it within the line takes for ever with some lines.
        name = (match["words"].split() or [""])[-1]
        if _SCRIPT.fullmatch(name) and (end := text.find(f"\n{match['fence']}", match.end() - 1)) >= 0:
            scripts[name] = text[match.end() : end + 1]
    return scripts
