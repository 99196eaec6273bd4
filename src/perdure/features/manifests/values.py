"""What files of agents describe, and what applying them changes. Values only."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.core.text.json_strings import sorted_json

ThingKind = Literal["mcp_servers", "tools", "blocks", "archives", "agents", "groups", "schedules"]
KINDS: Mapping[ThingKind, str] = {
    "mcp_servers": "MCP server",
    "tools": "tool",
    "blocks": "block",
    "archives": "archive",
    "agents": "agent",
    "groups": "group",
    "schedules": "schedule",
}
"""Kind -> what one of it is called, in the order in which they are made: each may name those before it."""

DEFAULT_NAME = "default"
LISTS = ("tools", "archives", "shared_blocks")
"""The fields of agents whose names are things that it has; what a person or the agent has added stays."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """Where something stands: a file, and a line in it from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestObject:
    """An object that a file describes. `fields`: as given in the file; `places`: path of a field, such as
    `blocks.human.value` -> its file and line; the empty path is the thing itself."""

    kind: ThingKind
    name: str
    fields: Mapping[str, Any]
    places: Mapping[str, FileLine]

    def place(self, path: str = "") -> FileLine:
        """Return the file and line of a field, or of the field that it belongs to."""
        while path not in self.places:
            path = path.rpartition(".")[0]
        return self.places[path]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """All that the files of one set describe, in the order of kinds."""

    name: str = DEFAULT_NAME
    things: Sequence[ManifestObject] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedObject:
    """What was applied last. `fields`: path -> a digest of its value; `removed_at`: when it was taken out."""

    manifest: str
    kind: ThingKind
    name: str
    thing_id: str
    fields: Mapping[str, str]
    applied_at: datetime
    removed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field before and after; None: no value. `drifted`: not the file changed it since the last apply."""

    path: str
    before: Any
    after: Any
    drifted: bool = False


Action = Literal["create", "change", "restore", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happens to one thing. `note`: more about it, in words."""

    action: Action
    kind: ThingKind
    name: str
    fields: Sequence[FieldChange] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What applying a manifest changes, or has changed.

    Args:
        changes: in the order in which they are made.
        left: (kind, name) of what the file had once, and has no more; it stays unless it is pruned.
        noted: how many things are noted as the file's, without a change.
        total: how many things the files describe.
        waiting: the MCP servers that have to be read before agents get their tools.
    """

    changes: Sequence[Change] = ()
    left: Sequence[tuple[ThingKind, str]] = ()
    noted: int = 0
    total: int = 0
    waiting: Sequence[str] = ()

    @property
    def digest(self) -> str:
        """A hash of all changes: what was looked at is what is applied."""
        said = [
            [one.action, one.kind, one.name, [[f.path, f.before, f.after] for f in one.fields]] for one in self.changes
        ]
        return hashlib.sha256(sorted_json(said).encode("utf-8", "surrogatepass")).hexdigest()

    def count(self, action: Action) -> int:
        """How many things are created, changed, restored or removed."""
        return sum(change.action == action for change in self.changes)


def digest_of(value: Any) -> str:
    """A short digest of a value: it tells whether a file has changed, and not what it said."""
    return hashlib.sha256(sorted_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def flatten(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Path -> value of the fields of a thing: blocks and settings of an agent one by one, and a path for each name in
    `LISTS`, such as `tools.roll_dice`."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "blocks":
            for path, block in ((path_of(name, label), block) for label, block in value.items()):
                found |= {path: True} | {f"{path}.{key}": one for key, one in block.items()}
        elif name == "settings":
            found |= {f"settings.{key}": one for key, one in value.items()}
        elif name in LISTS:
            found |= dict.fromkeys((f"{name}.{one}" for one in value), True)
        else:
            found[name] = value
    return found


def path_of(*parts: str) -> str:
    """The path of a field of these names; the label of a block with dots is in quotes, for `notes.value` may be one."""
    if parts[:1] == ("blocks",) and {".", '"'} & {*"".join(parts[1:2])}:
        parts = ("blocks", json.dumps(parts[1], ensure_ascii=False), *parts[2:])
    return ".".join(parts)


def is_member(path: str) -> bool:
    """Whether a path names something that an agent has, such as a block, and not a field."""
    return path.partition(".")[0] in LISTS or _BLOCK.fullmatch(path) is not None


_BLOCK = re.compile(r'blocks\.("([^"\\]|\\.)*"|[^."]*)')
