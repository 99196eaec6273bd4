"""The plug-ins in the data folder: what was approved of each, and which of them are in use."""

from __future__ import annotations

import fcntl
import functools
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.plugins.definitions import SKILL_FILE, DefinitionKind, is_name
from perdure.features.plugins.manifest import POINT_OF_EVENT, PluginHook, PluginServer
from perdure.features.plugins.places import FileInvalid
from perdure.features.plugins.policy import Policy, load_policy
from perdure.features.plugins.versions import check_range, is_in_range
from perdure.settings import Settings

FOLDER = "plugins"
WHY_CHARS = 1_000
RECORDS_FILE = "plugins.json"
"""What is installed: name of a plug-in -> its record. A folder without one is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """What was approved of an installed plug-in. Its files may change later; its hooks and servers are these.

    Args:
        source: the path or URL that it comes from.
        installed_at: in ISO format.
        folder: the name of its folder; empty: its name.
        server_ids: the ids of its servers in the store, as long as it is enabled.
    """

    name: str
    version: str = ""
    description: str = ""
    source: str = ""
    installed_at: str = ""
    is_enabled: bool = True
    folder: str = ""
    dependencies: Mapping[str, str] = field(default_factory=dict)
    roots: Mapping[DefinitionKind, Sequence[str]] = field(default_factory=dict)
    hooks: Sequence[PluginHook] = ()
    servers: Sequence[PluginServer] = ()
    server_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePlugin:
    """A plug-in that is in use, in its folder."""

    record: PluginRecord
    folder: Path

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    def roots(self, kind: DefinitionKind) -> Sequence[Path]:
        """Return the folders and files with its definitions of a kind, without those inside another one."""
        roots = [self.folder / root for root in self.record.roots.get(kind, (kind,))]
        if kind == "skills":  # a folder has itself and those right below it, no deeper ones
            return [one for one in roots if one.parent not in roots or not (one / SKILL_FILE).is_file()]
        return [one for one in roots if not any(one != other and one.is_relative_to(other) for other in roots)]


def plugins_folder(settings: Settings) -> Path:
    """The folder that holds a folder for each plug-in."""
    return settings.folder / FOLDER


def folder_of(record: PluginRecord, settings: Settings) -> Path:
    """The folder of an installed plug-in."""
    return plugins_folder(settings) / (record.folder or record.name)


def active_plugins(settings: Settings) -> Sequence[ActivePlugin]:
    """The plug-ins that are in use, by name. Raises: InvalidInput: the records or the policy can't be read."""
    policy, records = load_policy(settings), load_records(settings)
    unused = unused_plugins(records, policy)
    return [
        ActivePlugin(record=record, folder=folder_of(record, settings))
        for name, record in records.items()
        if name not in unused
    ]


def unused_plugins(records: Mapping[str, PluginRecord], policy: Policy) -> Mapping[str, str]:
    """Return name -> why it is not in use, in words, of the installed plug-ins that are not."""
    whys = {name: why for name, record in records.items() if (why := _why_by_itself(record, records, policy))}
    needing: dict[str, list[str]] = {}
    for name, record in records.items():
        for other in record.dependencies:
            needing.setdefault(other, []).append(name)
    waiting = deque(whys)
    while waiting:
        lost = waiting.popleft()
        for name in needing.get(lost, ()):
            if name not in whys:
                whys[name] = f"it needs {lost!r}: {whys[lost]}"[:WHY_CHARS]
                waiting.append(name)
    return whys


def _why_by_itself(record: PluginRecord, records: Mapping[str, PluginRecord], policy: Policy) -> str:
    """Return why a plug-in is not in use, apart from its dependencies; empty: nothing prevents it."""
    if not record.is_enabled:
        return "it is disabled"
    if not policy.allows_plugin(record.name):
        return "the policy forbids it"
    for name, versions in record.dependencies.items():
        other = records.get(name)
        if other is None:
            return f"it needs the plug-in {name!r}, which is not installed"
        if not is_in_range(other.version, versions):
            return f"it needs {name!r} {versions}, and {other.version or 'a version without a number'} is installed"
    return ""


def why_unused(record: PluginRecord, records: Mapping[str, PluginRecord], policy: Policy) -> str:
    """Return why a plug-in would not be in use with this record, in words; empty: it would."""
    return unused_plugins({**records, record.name: record}, policy).get(record.name, "")


def why_server_unused(settings: Settings, plugin: str, server_id: str) -> str:
    """Return why an MCP server that a plug-in registered is not in use, in words; empty: it is."""
    try:
        records, policy = load_records(settings), load_policy(settings)
    except InvalidInput as error:
        return str(error)
    if (record := records.get(plugin)) is None:
        return f"the plug-in {plugin!r} is not installed; `perdure plugin remove {plugin}` removes what it left"
    if why := why_unused(record, records, policy):
        return f"of the plug-in {plugin!r}: {why}"
    return "" if server_id in record.server_ids else f"the plug-in {plugin!r} was installed or enabled again elsewhere"


def load_records(settings: Settings) -> Mapping[str, PluginRecord]:
    """The records of the installed plug-ins, sorted by name. Raises: InvalidInput: the file can't be read."""
    file = plugins_folder(settings) / RECORDS_FILE
    try:
        state = file.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error}") from error
    return _read_records(file, state.st_mtime_ns, state.st_ctime_ns, state.st_size)


def change_records(
    settings: Settings, change: Callable[[Mapping[str, PluginRecord]], Mapping[str, PluginRecord]]
) -> Mapping[str, PluginRecord]:
    """Replace the records by what `change` makes of them, at once, while no other process does; return them. Without
    records there is no file. Raises: InvalidInput; what `change` raises."""
    folder = plugins_folder(settings)
    with _lock(folder):
        records = change(load_records(settings))
        file = folder / RECORDS_FILE
        if not records:
            file.unlink(missing_ok=True)
            return {}
        shape = {name: _shape(record) for name, record in sorted(records.items())}
        new = folder / f".{RECORDS_FILE}.new"
        with new.open("w", encoding="utf-8") as out:
            json.dump(shape, out, ensure_ascii=False, indent=1)
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)
    return records


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder with plug-ins, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _shape(record: PluginRecord) -> dict[str, Any]:
    """Return a record as stored: only what differs from the defaults."""
    empty = asdict(PluginRecord(name=record.name))
    return {name: value for name, value in asdict(record).items() if value != empty[name]}


@functools.lru_cache(maxsize=16)
def _read_records(file: Path, *_state: int) -> Mapping[str, PluginRecord]:
    """The records in a file; `_state` changes with it. Raises: InvalidInput."""
    try:
        shape: Any = json.loads(file.read_text(encoding="utf-8-sig"))
        return {name: _record(name, one) for name, one in sorted(shape.items()) if is_name(name)}
    except (OSError, ValueError, TypeError, AttributeError, InvalidInput) as error:
        raise FileInvalid(file, getattr(error, "lineno", 0), f"it can't be used: {error}") from error


def _record(name: str, shape: Mapping[str, Any]) -> PluginRecord:
    """The record in its stored form. Raises: TypeError, ValueError, AttributeError, InvalidInput: it has something that
    no plug-in can have; somebody edited it, or it is of another version."""
    lists = {
        "hooks": [PluginHook(**one) for one in shape.get("hooks", ())],
        "servers": [PluginServer(**one) for one in shape.get("servers", ())],
    }
    record = PluginRecord(**{**shape, "name": name, **lists})
    if record.folder and not is_name(record.folder):
        raise ValueError(f"{name}: {record.folder!r:.80} is not a folder of a plug-in")
    for path in (Path(one) for paths in record.roots.values() for one in paths):
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{name}: {str(path)!r:.80} is not a path below its folder")
    for event in (hook.event for hook in record.hooks):
        if event not in POINT_OF_EVENT:
            raise ValueError(f"{name}: {event!r:.80} is not an event of hooks")
    for versions in record.dependencies.values():
        check_range(versions)
    return record
