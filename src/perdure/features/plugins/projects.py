"""The setting `project` of an agent: the folder whose definitions it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput
from perdure.scratch import user_path
from perdure.settings import Settings

PROJECT = "project"
PATH_CHARS = 4_096


def project_of(agent: Agent) -> Path | None:
    """Return the folder of an agent's project, which may be missing; None: it has none."""
    value = agent.settings.get(PROJECT)
    return Path(value) if isinstance(value, str) and value else None


def check_project(settings: Mapping[str, Any]) -> None:
    """Check the field `project` in an agent's settings, which has to be there. Raises: InvalidInput."""
    value = settings[PROJECT]
    if not isinstance(value, str) or len(value) > PATH_CHARS or any(ord(one) < 32 for one in value):
        raise InvalidInput(f"{PROJECT} is {value!r:.80}: give the path of a folder")
    if value and not Path(value).is_absolute():
        raise InvalidInput(f"{PROJECT} is {value!r:.80}: give the whole path of a folder, from / on")


def check_root(value: str, settings: Settings) -> None:
    """Check that a project named over HTTP lies below one of the roots of `PERDURE_PROJECT_ROOTS`; links are followed.

    Raises: InvalidInput: it does not; or there are no roots.
    """
    roots = [one for text in settings.project_roots.split(os.pathsep) if (one := text.strip())]
    folder = Path(value)
    try:
        inside = any(folder.resolve().is_relative_to(user_path(root).resolve()) for root in roots)
    except (OSError, RuntimeError, ValueError):
        inside = False
    if not folder.is_absolute() or not inside:
        raise InvalidInput(
            f"{PROJECT} names another folder than those below PERDURE_PROJECT_ROOTS, which are all that can be given"
            " over HTTP; the library and the command line take any"
        )
