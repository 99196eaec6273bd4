"""Definitions of helpers, commands and skills: what a Markdown file with frontmatter says. Values only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from perdure.core.text.forms import match_form

DefinitionKind = Literal["agents", "commands", "skills"]
"""The names of the folders, as Claude Code has them; `agents` are helpers."""
KINDS: tuple[DefinitionKind, ...] = get_args(DefinitionKind)

Layer = Literal["built-in", "plug-in", "user", "project", "flags", "policy"]
"""Where a definition comes from. A later layer overrides an earlier one by name."""

_WEIGHTS: Mapping[str, int] = {"policy": 0, "flags": 1, "project": 2, "user": 3, "built-in": 4, "plug-in": 6}
"""Which layer comes first in a list that is cut; what has no layer is before plug-ins."""

SKILL_FILE = "SKILL.md"
"""The file of a skill, in a folder of its own."""

_NAME = re.compile(r"\w[\w.-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A helper, command or skill, as its file defines it.

    Args:
        name: the whole name: `name`, `folder:name` of a command, `plugin:name` or `plugin:folder:name` of a plug-in.
        path: its file; None: the setting `PERDURE_HELPERS` defines it.
        plugin: the name of the plug-in that brings it; empty: none does.
        fields: the frontmatter, with keys in snake_case. Known fields have the type that `FIELD_TYPES` says; others are
            kept as they are.
        notes: what has no effect here, such as an unknown field, with its line.
    """

    kind: DefinitionKind
    name: str
    layer: Layer
    path: Path | None
    plugin: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    notes: Sequence[str] = ()

    @property
    def description(self) -> str:
        """What it is for, on one line; empty: its file does not say."""
        return " ".join(str(self.fields.get("description", "")).split())

    @property
    def folder(self) -> Path | None:
        """The folder of its file, which holds the other files of a skill."""
        return None if self.path is None else self.path.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableDefinition:
    """What an agent makes of a definition: a helper or a command.

    Args:
        missing: the tools that the definition names and that are not there.
    """

    definition: Definition
    missing: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name by which it is called."""
        return self.definition.name

    @property
    def layer(self) -> Layer:
        """Where its definition is from."""
        return self.definition.layer

    def field(self, name: str, default: Any = None) -> Any:
        """Return a field of its definition."""
        value = self.definition.fields.get(name)
        return default if value in (None, "") else value


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionProblem:
    """Why a file defines nothing; other files still work. `line`: from 1; 0: no certain line. `names`: the names that
    it may have meant to define; empty: any."""

    path: Path
    line: int
    why: str
    names: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}" if self.line else f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """All definitions of one kind.

    Args:
        by_name: name -> the definition that counts, sorted by name.
        shadowed: those that a definition of the same name in a later layer overrides.
        denied: those that a policy forbids.
        problems: the files that define nothing.
        broken: name in the form in which names are compared -> the file of the policy that keeps it from all others.
        taken: these names, and in the same form those of the definitions that count.
    """

    by_name: Mapping[str, Definition] = field(default_factory=dict)
    shadowed: Sequence[Definition] = ()
    denied: Sequence[Definition] = ()
    problems: Sequence[DefinitionProblem] = ()
    broken: Mapping[str, DefinitionProblem] = field(default_factory=dict)
    taken: Collection[str] = ()

    def why_refused(self, name: str) -> str:
        """Why the policy keeps a name from all that would have it; empty: it does not."""
        if (problem := self.broken.get(match_form(name))) is not None:
            return f"the policy's definition of it can't be used: {problem}"
        is_denied = any(match_form(one.name) == match_form(name) for one in self.denied)
        return "the policy forbids it" if is_denied else ""

    def is_free(self, name: str) -> bool:
        """Whether no definition has this name in any letter case, and the policy does not keep it from others."""
        return match_form(name) not in self.taken


T = TypeVar("T", bound=Any)


def by_weight(items: Iterable[T]) -> list[T]:
    """Return things with `name` and `layer` ordered by importance, for a list without room for all: plug-ins last, and
    among them the first of each, then the second, so that none crowds out another."""
    counts = Counter[str]()

    def place(one: T) -> tuple[int, int]:
        """Return its layer's rank, and its index among the things of its plug-in."""
        if one.layer == "plug-in":
            counts[plugin := one.name.partition(":")[0]] += 1
            return _WEIGHTS[one.layer], counts[plugin]
        return _WEIGHTS.get(one.layer, 5), 0

    return sorted(items, key=place)


def is_name(text: str) -> bool:
    """Whether a text can be the name of a definition or plug-in, or one part of such a name."""
    return _NAME.fullmatch(text) is not None


NAME_RULE = "a name has up to 64 letters, digits, `_`, `-` and `.`, and begins with a letter or digit"
