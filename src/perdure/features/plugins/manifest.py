"""What a plug-in's folder says of itself: `plugin.json`, hooks and MCP servers, in Claude Code's layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

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


def _check_plain(text: str) -> str:
    """The text. Raises: ValueError: it has a control character, which could hide some of it."""
    if _CONTROL.search(text):
        raise ValueError("it has a control character")
    return text


_Text = Annotated[str, Field(max_length=TEXT_CHARS), AfterValidator(_check_plain)]


class _FileShape(BaseModel):
    """What a file holds; other fields are passed over."""

    model_config = ConfigDict(strict=True)


class _ManifestIn(_FileShape):
    name: _Text = ""
    version: _Text = ""
    description: _Text = ""


class _HookIn(_FileShape):
    type: _Text = "command"
    command: _Text = ""
    timeout: Annotated[float, Field(gt=0)] = HOOK_TIMEOUT_S


class _GroupIn(_FileShape):
    matcher: _Text = ""
    hooks: Sequence[_HookIn] = ()


class _ServerIn(_FileShape):
    type: _Text = ""
    command: _Text = ""
    args: list[_Text] = []
    env: dict[_Text, _Text] = {}
    url: _Text = ""
    headers: dict[_Text, _Text] = {}


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
    read = _parse(_ManifestIn, shape, file)
    own_name = read.name or name
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
        version=read.version,
        description=read.description,
        dependencies=_dependencies(shape.get("dependencies", []), file),
        roots={kind: [*dict.fromkeys([kind, *_paths(shape.get(kind, []), f"{file}: {kind}")])] for kind in KINDS},
        hooks=hooks,
        servers=servers,
        notes=notes,
    )


def _parse(kind: Any, shape: Any, label: str) -> Any:
    """A value of a file as this type. Raises: InvalidInput: it is of another one, with its place."""
    try:
        return TypeAdapter(kind).validate_python(shape)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{label}: {place}: {first['msg']}" if place else f"{label}: {first['msg']}") from error


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
    events = {name: one for name, one in shape.items() if name != "description"} if isinstance(shape, dict) else shape
    events = _parse(dict[str, list[_GroupIn]], events.get("hooks", events) if isinstance(shape, dict) else shape, label)
    for event, groups in events.items():
        for matcher, one in ((group.matcher, one) for group in groups for one in group.hooks):
            if one.type != "command" or event not in POINT_OF_EVENT:
                what = f"the event {event!r:.60}" if one.type == "command" else f"a hook of the type {one.type!r:.60}"
                notes.append(f"{label}: {what} has no effect here")
                continue
            if not one.command.strip():
                raise InvalidInput(f"{label}: {event} has a hook without a command")
            check_matcher(matcher, f"{label}: {event}")
            yield PluginHook(event=event, command=one.command, matcher=matcher, timeout_s=min(600.0, one.timeout))


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
    for name, one in _parse(dict[str, _ServerIn], servers, label).items():
        if not is_name(name):
            raise InvalidInput(f"{label}: the server's name {name!r:.80} can't be used: {NAME_RULE}")
        if bool(one.command) == bool(one.url):
            raise InvalidInput(f"{label}: {name} needs a command or a url")
        yield PluginServer(
            name=name,
            command=one.command,
            args=one.args,
            environment=one.env,
            url=one.url,
            is_sse=one.type == "sse",
            headers=one.headers,
        )
