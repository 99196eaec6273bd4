"""What an administrator forbids or allows, in `policy.toml` of the folder `PERDURE_POLICY`."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.core.text.forms import match_form
from perdure.features.plugins.definitions import DefinitionKind
from perdure.features.plugins.places import FileInvalid
from perdure.scratch import user_path
from perdure.settings import Settings

POLICY_FILE = "policy.toml"

_TOML_LINE = re.compile(r"\(at line (\d+)")

_WORDS = {"agents": "helpers", "commands": "commands", "skills": "skills"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Lists of patterns such as `anthropic/*`, in which `*` is any text. An `allowed` list that is None allows all; a
    `denied` list wins over it, in every layer.

    Args:
        allowed_models, denied_models: handles of models that helpers and commands may use.
        denied_tools: tools that no helper, command or skill may use, whatever its definition says.
        allowed_helpers, allowed_commands, allowed_skills, allowed_plugins: the only ones there are.
        denied_helpers, denied_commands, denied_skills, denied_plugins: ones that there are not.
    """

    allowed_models: Sequence[str] | None = None
    denied_models: Sequence[str] = ()
    denied_tools: Sequence[str] = ()
    allowed_helpers: Sequence[str] | None = None
    denied_helpers: Sequence[str] = ()
    allowed_commands: Sequence[str] | None = None
    denied_commands: Sequence[str] = ()
    allowed_skills: Sequence[str] | None = None
    denied_skills: Sequence[str] = ()
    allowed_plugins: Sequence[str] | None = None
    denied_plugins: Sequence[str] = ()

    def allows_model(self, handle: str) -> bool:
        """Whether helpers and commands may use the model."""
        return _allows(handle, self.allowed_models, self.denied_models)

    def allows_tool(self, name: str) -> bool:
        """Whether helpers, commands and skills may use the tool."""
        servers = (f"{tool}__*" for tool in self.denied_tools if tool.startswith("mcp__"))  # all tools of each
        return _allows(name, None, (*self.denied_tools, *servers))

    def allows_plugin(self, name: str) -> bool:
        """Whether the plug-in may be installed and used."""
        return _allows_name(name, self.allowed_plugins, self.denied_plugins)

    def allows(self, kind: DefinitionKind, name: str) -> bool:
        """Whether there may be such a helper, command or skill."""
        word = _WORDS[kind]
        return _allows_name(name, getattr(self, f"allowed_{word}"), getattr(self, f"denied_{word}"))


NO_POLICY = Policy()


def load_policy(settings: Settings) -> Policy:
    """Return the policy of the settings; a folder without the file forbids nothing.

    Raises: InvalidInput: the folder is missing, or its file can't be read or has something unknown. Nothing is allowed
        then, since it may be there to forbid something.
    """
    if (folder := policy_folder(settings)) is None:
        return NO_POLICY
    file = folder / POLICY_FILE
    try:
        stat = file.stat()
    except FileNotFoundError:
        if folder.is_dir() and not file.is_symlink():  # one that leads nowhere may be there to forbid something
            return NO_POLICY
        if file.is_symlink():
            raise FileInvalid(file, 0, "it is a link that leads nowhere") from None
        raise InvalidInput(f"PERDURE_POLICY is {settings.policy!r}: there is no such folder") from None
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror or error}") from error
    return _read_policy(file, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)


def policy_folder(settings: Settings) -> Path | None:
    """The folder of the policy, which may be missing; None: there is none."""
    return user_path(settings.policy) if settings.policy else None


@functools.lru_cache(maxsize=16)
def _read_policy(file: Path, *_state: int) -> Policy:
    """The policy of a file; `_state` changes with it. Raises: InvalidInput."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        shape = tomllib.loads(text)
    except (OSError, ValueError) as error:
        found = _TOML_LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1 if "end of document" in str(error) else 0
        raise FileInvalid(file, line, f"it can't be used: {error}") from error
    known = [field.name for field in fields(Policy)]
    for name, value in shape.items():
        if name not in known:
            why = f"{name!r:.60} is not known; known are {', '.join(known)}"
        elif not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            why = f"{name} is {value!r:.80}: give a list of names or patterns"
        else:
            continue
        found = re.search(rf"^[ \t]*[\[\"']*{re.escape(name)}\b", text, re.MULTILINE)
        raise FileInvalid(file, text.count("\n", 0, found.start()) + 1 if found else 0, why)
    return Policy(**{name: tuple(value) for name, value in shape.items()})


def _allows(name: str, allowed: Iterable[str] | None, denied: Iterable[str]) -> bool:
    """Whether a name is in the allowed patterns, None being any, and not in the denied ones."""
    if any(fnmatchcase(name, pattern) for pattern in denied):
        return False
    return allowed is None or any(fnmatchcase(name, pattern) for pattern in allowed)


def _allows_name(name: str, allowed: Iterable[str] | None, denied: Iterable[str]) -> bool:
    """As `_allows`, without regard to letter case, as names of definitions are compared."""
    return _allows(match_form(name), None if allowed is None else map(match_form, allowed), map(match_form, denied))
