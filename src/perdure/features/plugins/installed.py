"""The plug-ins in the data folder, and which of them are in use."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.plugins.definitions import DefinitionKind, is_name
from perdure.features.plugins.policy import load_policy
from perdure.settings import Settings

FOLDER = "plugins"
RECORDS_FILE = "plugins.json"
"""What is installed: name of a plug-in -> its record. A folder without one is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """A plug-in that was installed. `source`: the path or URL that it comes from; `installed_at`: in ISO format."""

    name: str
    source: str = ""
    version: str = ""
    installed_at: str = ""
    is_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePlugin:
    """A plug-in that is enabled, in its folder."""

    name: str
    folder: Path

    def roots(self, kind: DefinitionKind) -> Sequence[Path]:
        """The folders and files with its definitions of a kind."""
        return [self.folder / kind]


def plugins_folder(settings: Settings) -> Path:
    """The folder that holds a folder for each plug-in."""
    return settings.folder / FOLDER


def load_records(settings: Settings) -> Mapping[str, PluginRecord]:
    """The records of the installed plug-ins by name. Raises: InvalidInput: the file of records can't be read."""
    file = plugins_folder(settings) / RECORDS_FILE
    try:
        state = file.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error}") from error
    return _read_records(file, state.st_mtime_ns, state.st_ctime_ns, state.st_size)


def active_plugins(settings: Settings) -> Sequence[ActivePlugin]:
    """The plug-ins that are in use, by name: installed, enabled, and not forbidden. Raises: InvalidInput."""
    policy = load_policy(settings)
    return [
        ActivePlugin(name=name, folder=plugins_folder(settings) / name)
        for name, record in load_records(settings).items()
        if record.is_enabled and policy.allows_plugin(name)
    ]


@functools.lru_cache(maxsize=16)
def _read_records(file: Path, *_state: int) -> Mapping[str, PluginRecord]:
    """The records in a file; `_state` changes with it. Raises: InvalidInput."""
    try:
        shape: Any = json.loads(file.read_text(encoding="utf-8"))
        records = {name: PluginRecord(name=name, **one) for name, one in sorted(shape.items()) if is_name(name)}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{file} can't be used: {error}") from error
    return records
