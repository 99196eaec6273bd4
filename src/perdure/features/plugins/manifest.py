"""What a plug-in's folder says of itself: `plugin.json`, hooks and MCP servers, in Claude Code's layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from perdure.core.errors import InvalidInput
from perdure.core.hooks import HookPoint
from perdure.core.text.forms import name_form
from perdure.features.plugins.definitions import KINDS, NAME_RULE, DefinitionKind, is_name
from perdure.features.plugins.places import JsonPart, read_json
from perdure.features.plugins.versions import check_range

MANIFESTS = (".claude-plugin/plugin.json", "plugin.json")
HOOKS_FILE, SERVERS_FILE = "hooks/hooks.json", ".mcp.json"
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

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NO_PATH = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\\]")


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
    """The file `plugin.json`, as far as it is used."""

    name: _Text = ""
    version: _Text = ""
    description: _Text = ""


class _HookIn(_FileShape):
    """A hook in a plug-in's file of hooks; only the type `command` runs."""

    type: _Text = "command"
    command: _Text = ""
    timeout: Annotated[float, Field(gt=0)] = HOOK_TIMEOUT_S


class _GroupIn(_FileShape):
    """Hooks that run for the same tools."""

    matcher: _Text = ""
    hooks: Sequence[_HookIn] = ()


class _ServerIn(_FileShape):
    """An MCP server in a plug-in's file."""

    type: _Text = ""
    command: _Text = ""
    args: list[_Text] = []
    env: dict[_Text, _Text] = {}
    url: _Text = ""
    headers: dict[_Text, _Text] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginHook:
    """A command to run at an event of Claude Code, such as `PreToolUse`; `matcher`: pattern of tool names, or empty."""

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
    """Return the manifest of a plug-in's folder; `name`: its name if the manifest has none.

    Raises: FileInvalid: a file is no JSON or has something else than it should, with its name and line.
    """
    file = next((one for one in MANIFESTS if (folder / one).is_file()), "")
    whole = read_json(folder, file) if file else JsonPart(MANIFESTS[0], "{}", {})
    read = _parse(_ManifestIn, whole)
    own_name = name_form(read.name or name)
    if not is_name(own_name):
        raise whole.error(f"the name {own_name!r:.80} can't be used: {NAME_RULE}", "name")
    notes: list[str] = []
    hooks = [hook for part in _parts(folder, whole, "hooks", HOOKS_FILE) for hook in _hooks(part, notes)]
    servers = [server for part in _parts(folder, whole, "mcpServers", SERVERS_FILE) for server in _servers(part, notes)]
    for what, count, most in (("hooks", len(hooks), HOOKS_MAX), ("MCP servers", len(servers), SERVERS_MAX)):
        if count > most:
            raise whole.error(f"the plug-in has {count} {what}, the limit is {most}")
    notes += [f"{name}: not supported" for name in ("outputStyles", "lspServers", "settings") if name in whole.value]
    return Manifest(
        name=own_name,
        version=read.version,
        description=read.description,
        dependencies=_dependencies(whole),
        roots={
            kind: [*dict.fromkeys([kind, *(_paths(whole.at(kind)) if whole.value.get(kind) is not None else ())])]
            for kind in KINDS
        },
        hooks=hooks,
        servers=servers,
        notes=notes,
    )


def _parse(kind: Any, part: JsonPart) -> Any:
    """A value of a file as this type. Raises: FileInvalid: it is of another one."""
    try:
        return TypeAdapter(kind).validate_python(part.value)
    except ValidationError as error:
        first = error.errors()[0]
        raise part.error(
            first["msg"].removeprefix("Value error, "), *(one for one in first["loc"] if one != "[key]")
        ) from error


def _parts(folder: Path, whole: JsonPart, name: str, usual: str) -> Iterator[JsonPart]:
    """Return a plug-in's hooks or servers, from the usual file and the manifest's field. Raises: FileInvalid."""
    if (folder / usual).is_file():
        yield read_json(folder, usual)
    for part in whole.at(name).parts() if whole.value.get(name) is not None else ():
        if isinstance(part.value, dict):
            yield part
        else:
            yield from (read_json(folder, path) for path in _paths(part) if path != usual)


def _paths(part: JsonPart) -> Sequence[str]:
    """The paths below the plug-in's folder in a field, a text or a list. Raises: FileInvalid: one leads out of it."""
    parts = [*part.parts()]
    if len(parts) > ROOTS_MAX:
        raise part.error(f"there are {len(parts)} paths, the limit is {ROOTS_MAX}")
    paths = []
    for one in parts:
        value = one.value
        path = PurePosixPath(value) if isinstance(value, str) and not _NO_PATH.search(value) else None
        is_whole = path is not None and not path.parts and part.keys == ("skills",) and value
        if path is None or path.is_absolute() or ".." in path.parts or not (path.parts or is_whole):
            raise one.error(f"{value!r:.80} is not a path below the plug-in's folder, such as ./more")
        paths.append(str(path))
    return paths


def _dependencies(whole: JsonPart) -> Mapping[str, str]:
    """Name -> range of versions. Raises: FileInvalid."""
    value = whole.value.get("dependencies") or []
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = [*value.items()]
    elif isinstance(value, list):
        pairs = [(one.get("name"), one.get("version") or "*") if isinstance(one, dict) else (one, "*") for one in value]
    if (value and not pairs) or len(pairs) > DEPENDENCIES_MAX:
        raise whole.error(f"{value!r:.80}: give a list of names, or names with ranges of versions", "dependencies")
    for place, (name, versions) in enumerate(pairs):
        keys = ("dependencies", name if isinstance(value, dict) else place)
        if not isinstance(name, str) or not is_name(name) or not isinstance(versions, str):
            raise whole.error(f"{name!r:.80}: give the name of a plug-in, and a range of versions", *keys)
        try:
            check_range(versions)
        except InvalidInput as error:
            raise whole.error(str(error), *keys) from error
    return dict(pairs)


def _hooks(part: JsonPart, notes: list[str]) -> Iterator[PluginHook]:
    """The hooks in a file; what has no effect is added to `notes`. Raises: FileInvalid."""
    part = part.at("hooks") if isinstance(part.value, dict) and "hooks" in part.value else part
    if isinstance(part.value, dict):
        part = replace(part, value={name: one for name, one in part.value.items() if name != "description"})
    for event, groups in _parse(dict[str, list[_GroupIn]], part).items():
        for place, group in enumerate(groups):
            for number, one in enumerate(group.hooks):
                if one.type != "command" or event not in POINT_OF_EVENT:
                    is_event = one.type == "command"
                    what = f"the event {event!r:.60}" if is_event else f"a hook of the type {one.type!r:.60}"
                    notes.append(f"{part.file}: {what} has no effect here")
                    continue
                if not one.command.strip():
                    raise part.error("a hook has no command", event, place, "hooks", number, "command")
                if why := why_no_matcher(group.matcher):
                    raise part.error(why, event, place, "matcher")
                timeout_s = min(600.0, one.timeout)
                yield PluginHook(event=event, command=one.command, matcher=group.matcher, timeout_s=timeout_s)


def why_no_matcher(matcher: str) -> str:
    """Return why a text is no pattern of the names of tools; empty: it is one."""
    import regex

    try:
        regex.compile("" if matcher == "*" else matcher)
    except (regex.error, RecursionError) as error:
        return f"the matcher {matcher!r:.80} is not a pattern: {error}"
    return ""


def secret_in(name: str, value: str) -> str:
    """Return the name of the secret that the value of a variable or header stands for, `${NAME}`, or for the token in
    `Authorization: Bearer ${NAME}`; empty: for none."""
    scheme = "(?i:bearer +)?" if name.lower() == "authorization" else ""
    found = re.fullmatch(rf"{scheme}\$\{{([A-Za-z_]\w*)\}}", value)
    return found[1] if found else ""


def _servers(part: JsonPart, notes: list[str]) -> Iterator[PluginServer]:
    """The MCP servers in a file; what has no effect is added to `notes`. Raises: FileInvalid."""
    part = part.at("mcpServers") if isinstance(part.value, dict) and "mcpServers" in part.value else part
    for name, one in _parse(dict[str, _ServerIn], part).items():
        if not is_name(name):
            raise part.error(f"the server's name {name!r:.80} can't be used: {NAME_RULE}", name)
        if bool(one.command) == bool(one.url):
            raise part.error("it needs a command or a url", name)
        values = [value for key, value in {**one.env, **one.headers}.items() if not secret_in(key, value)]
        if any("${" in text.replace(ROOT_VARIABLE, "") for text in (one.url, *one.args, *values)):
            notes.append(f"{part.file}: {name}: `${{` inside a text stays as it is: only a whole value is a secret")
        yield PluginServer(
            name=name,
            command=one.command,
            args=one.args,
            environment=one.env,
            url=one.url,
            is_sse=one.type == "sse",
            headers=one.headers,
        )
