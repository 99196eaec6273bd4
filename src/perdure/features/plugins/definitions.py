"""Definitions of helpers, commands and skills: what a Markdown file with frontmatter says. Values only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

DefinitionKind = Literal["agents", "commands", "skills"]
"""The names of the folders, as Claude Code has them; `agents` are helpers."""
KINDS: tuple[DefinitionKind, ...] = get_args(DefinitionKind)

Layer = Literal["built-in", "plug-in", "user", "project", "flags", "policy"]
"""Where a definition comes from. A later layer overrides an earlier one by name."""
LAYERS: tuple[Layer, ...] = get_args(Layer)

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
class DefinitionProblem:
    """Why a file defines nothing; others still work. `line` is counted from 1; 0: no line is to blame."""

    path: Path
    line: int
    why: str

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
    """

    by_name: Mapping[str, Definition] = field(default_factory=dict)
    shadowed: Sequence[Definition] = ()
    denied: Sequence[Definition] = ()
    problems: Sequence[DefinitionProblem] = ()


def is_name(text: str) -> bool:
    """Whether a text can be the name of a definition or plug-in, or one part of such a name."""
    return _NAME.fullmatch(text) is not None


NAME_RULE = "a name has up to 64 letters, digits, `_`, `-` and `.`, and begins with a letter or digit"
