"""What a plug-in's folder says of itself: `plugin.json`, hooks and MCP servers, in Claude Code's layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.hooks import HookPoint
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.features.plugins.definitions import KINDS, NAME_RULE, DefinitionKind, is_name
from perdure.features.plugins.versions import check_range

MANIFESTS = (".claude-plugin/plugin.json", "plugin.json")
HOOKS_FILE, SERVERS_FILE = "hooks/hooks.json", ".mcp.json"
FILE_BYTES = 256_000
HOOKS_MAX, SERVERS_MAX, ROOTS_MAX, DEPENDENCIES_MAX = 100, 20, 50, 50
TEXT_CHARS = 10_000
HOOK_TIMEOUT_S = 60.0
"""How long a hook may take that does not say it, as in Claude Code."""
POINT_OF_EVENT: Mapping[str, HookPoint] = {
    "SessionStart": "conversation_start",
    "UserPromptSubmit": "run_start",
    "PreToolUse": "before_tool",
    "PostToolUse": "after_tool",
    "PreCompact": "before_compaction",
    "PostCompact": "after_compaction",
    "Stop": "run_end",
    "SessionEnd": "conversation_end",
}
"""Event of Claude Code -> the point at which its hooks are called."""

ROOT_VARIABLE = "${CLAUDE_PLUGIN_ROOT}"
"""What stands for the plug-in's folder in commands."""

_LIMITS = JsonLimits(size_bytes=FILE_BYTES, depth=20)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginHook:
    """A command that is to run at an event of Claude Code, such as `PreToolUse`; `matcher`: a pattern of the names of
    tools, or empty."""

    event: str
    command: str
    matcher: str = ""
    timeout_s: float = HOOK_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginServer:
    """An MCP server: a program with its arguments, or an address. `environment` and `headers` go to it."""

    name: str
    command: str = ""
    args: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    is_sse: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Its command or its address, for people."""
        return self.url or " ".join((self.command, *self.args))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A plug-in as its files describe it.

    Args:
        dependencies: name of another plug-in -> the range of its versions.
        roots: kind -> paths of folders and files with definitions, below the plug-in's folder.
        notes: what has no effect here.
    """

    name: str
    version: str = ""
    description: str = ""
    dependencies: Mapping[str, str] = field(default_factory=dict)
    roots: Mapping[DefinitionKind, Sequence[str]] = field(default_factory=dict)
    hooks: Sequence[PluginHook] = ()
    servers: Sequence[PluginServer] = ()
    notes: Sequence[str] = ()


def read_manifest(folder: Path, *, name: str) -> Manifest:
    """Return what a plug-in's folder says of itself; `name` is its name if it does not say one.

    Raises: InvalidInput: a file is no JSON or has something else than it should, with the file's name and place.
    """
    file = next((one for one in MANIFESTS if (folder / one).is_file()), MANIFESTS[0])
    shape = _read_json(folder, file) if (folder / file).is_file() else {}
    read = _Fields(shape, file)
    own_name = read.text("name") or name
    if not is_name(own_name):
        raise InvalidInput(f"{file}: the name {own_name!r:.80} can't be used: {NAME_RULE}")
    notes: list[str] = []
    hooks = [
        one for place, inner in _parts(folder, shape, file, "hooks", HOOKS_FILE) for one in _hooks(inner, place, notes)
    ]
    servers = [
        one
        for place, inner in _parts(folder, shape, file, "mcpServers", SERVERS_FILE)
        for one in _servers(inner, place)
    ]
    for what, count, most in (("hooks", len(hooks), HOOKS_MAX), ("MCP servers", len(servers), SERVERS_MAX)):
        if count > most:
            raise InvalidInput(f"{file}: the plug-in has {count} {what}, the limit is {most}")
    notes += [f"{name}: not supported" for name in ("outputStyles", "lspServers", "settings") if name in shape]
    return Manifest(
        name=own_name,
        version=read.text("version"),
        description=read.text("description"),
        dependencies=_dependencies(shape.get("dependencies", []), file),
        roots={kind: [*dict.fromkeys([kind, *_paths(shape.get(kind, []), f"{file}: {kind}")])] for kind in KINDS},
        hooks=hooks,
        servers=servers,
        notes=notes,
    )


class _Fields:
    """The fields of an object in a file; `label` names it in errors."""

    def __init__(self, shape: Any, label: str) -> None:
        if not isinstance(shape, dict):
            raise InvalidInput(f"{label} is no object")
        self._shape, self._label = shape, label

    def text(self, name: str) -> str:
        """The text of a field; empty: it is missing. Raises: InvalidInput."""
        value = self._shape.get(name)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > TEXT_CHARS or _CONTROL.search(value):
            raise InvalidInput(f"{self._label}: {name} is {value!r:.80}: give a text")
        return value

    def texts(self, name: str) -> Sequence[str]:
        """The texts in the list of a field. Raises: InvalidInput."""
        values = self._shape.get(name) or []
        if not isinstance(values, list):
            raise InvalidInput(f"{self._label}: {name} is {values!r:.80}: give a list of texts")
        return [_Fields({name: one}, self._label).text(name) for one in values]

    def texts_by_name(self, name: str) -> Mapping[str, str]:
        """The texts in the object of a field. Raises: InvalidInput."""
        values = self._shape.get(name) or {}
        inner = _Fields(values, f"{self._label}: {name}")
        return {key: inner.text(key) for key in values}


def _read_json(folder: Path, path: str) -> Any:
    """The JSON of a file of the folder. Raises: InvalidInput."""
    try:
        with (folder / path).open("rb") as file:
            data = file.read(FILE_BYTES + 1)
        return parse_json(data.decode("utf-8-sig"), _LIMITS)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} can't be used: {error}") from error


def _parts(folder: Path, shape: Mapping[str, Any], file: str, name: str, usual: str) -> Iterator[tuple[str, Any]]:
    """(where it stands, what stands there) of the hooks or servers of a plug-in: in the usual file, and in the field of
    its manifest, as an object or as the path of a file. Raises: InvalidInput."""
    if (folder / usual).is_file():
        yield usual, _read_json(folder, usual)
    value = shape.get(name)
    for one in value if isinstance(value, list) else [value] if value is not None else []:
        if isinstance(one, dict):
            yield f"{file}: {name}", one
        else:
            for path in _paths(one, f"{file}: {name}"):
                if path != usual:
                    yield path, _read_json(folder, path)


def _paths(value: Any, label: str) -> Sequence[str]:
    """The paths below the plug-in's folder in a field, a text or a list. Raises: InvalidInput: one leads out of it."""
    values = value if isinstance(value, list) else [value]
    if len(values) > ROOTS_MAX:
        raise InvalidInput(f"{label} has {len(values)} paths, the limit is {ROOTS_MAX}")
    paths = []
    for one in values:
        path = PurePosixPath(one) if isinstance(one, str) and not _CONTROL.search(one) and "\\" not in one else None
        if path is None or path.is_absolute() or ".." in path.parts or not path.parts:
            raise InvalidInput(f"{label} is {one!r:.80}: give a path below the plug-in's folder, such as ./more")
        paths.append(str(path))
    return paths


def _dependencies(value: Any, label: str) -> Mapping[str, str]:
    """Name -> range of versions. Raises: InvalidInput."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = [*value.items()]
    elif isinstance(value, list):
        for one in value:
            pairs.append((one.get("name"), one.get("version") or "*") if isinstance(one, dict) else (one, "*"))
    if (value and not pairs) or len(pairs) > DEPENDENCIES_MAX:
        raise InvalidInput(
            f"{label}: dependencies is {value!r:.80}: give a list of names, or names with ranges of versions"
        )
    for name, versions in pairs:
        if not isinstance(name, str) or not is_name(name) or not isinstance(versions, str):
            raise InvalidInput(
                f"{label}: dependencies has {name!r:.80}: give the name of a plug-in, and a range of versions"
            )
        check_range(versions)
    return dict(pairs)


def _hooks(shape: Any, label: str, notes: list[str]) -> Iterator[PluginHook]:
    """The hooks in a file; what has no effect is added to `notes`. Raises: InvalidInput."""
    events = shape.get("hooks", shape) if isinstance(shape, dict) else shape
    _Fields(events, label)
    for event, groups in events.items():
        if not isinstance(groups, list):
            raise InvalidInput(f"{label}: {event!r:.60} is no list of hooks")
        for group in groups:
            matcher = _Fields(group, f"{label}: {event}").text("matcher")
            for one in group.get("hooks") or []:
                read = _Fields(one, f"{label}: {event}")
                if (kind := read.text("type") or "command") != "command" or event not in POINT_OF_EVENT:
                    what = f"the event {event!r:.60}" if kind == "command" else f"a hook of the type {kind!r:.60}"
                    notes.append(f"{label}: {what} has no effect here")
                    continue
                command, timeout_s = read.text("command"), one.get("timeout", HOOK_TIMEOUT_S)
                if not command.strip() or type(timeout_s) not in (int, float) or not timeout_s > 0:
                    raise InvalidInput(f"{label}: {event} has a hook without a command, or with a timeout that is none")
                check_matcher(matcher, f"{label}: {event}")
                yield PluginHook(event=event, command=command, matcher=matcher, timeout_s=min(600.0, float(timeout_s)))


def check_matcher(matcher: str, label: str) -> None:
    """Check a pattern of the names of tools. Raises: InvalidInput."""
    import regex

    try:
        regex.compile("" if matcher == "*" else matcher)
    except regex.error as error:
        raise InvalidInput(f"{label}: the matcher {matcher!r:.80} is no pattern: {error}") from error


def _servers(shape: Any, label: str) -> Iterator[PluginServer]:
    """The MCP servers in a file. Raises: InvalidInput."""
    servers = shape.get("mcpServers", shape) if isinstance(shape, dict) else shape
    _Fields(servers, label)
    for name, one in servers.items():
        if not is_name(name):
            raise InvalidInput(f"{label}: the server's name {name!r:.80} can't be used: {NAME_RULE}")
        read = _Fields(one, f"{label}: {name}")
        server = PluginServer(
            name=name,
            command=read.text("command"),
            args=read.texts("args"),
            environment=read.texts_by_name("env"),
            url=read.text("url"),
            is_sse=read.text("type") == "sse",
            headers=read.texts_by_name("headers"),
        )
        if bool(server.command) == bool(server.url):
            raise InvalidInput(f"{label}: {name} needs a command or a url")
        yield server
