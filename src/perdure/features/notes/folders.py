"""A project's folder, and Perdure's own folder for what belongs to it. Imports the standard library only at first: the
hooks of coding agents run it, each in a process of its own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

MARK = ".git"
"""A folder that contains this is a project, with all folders below it."""


def find_project_folder(folder: str | Path) -> Path:
    """Return the folder of the project that a folder belongs to: the nearest one above it with `.git`, or itself.

    Links are followed, so that each project has one path. Raises: InvalidInput: there is no such folder.
    """
    try:
        resolved = Path(folder).expanduser().resolve(strict=True)
        why = "" if resolved.is_dir() else "it is a file"
    except (OSError, RuntimeError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error)
    if why:
        from perdure.core.errors import InvalidInput  # a hook needs none, and would wait for it

        raise InvalidInput(f"project {os.fspath(folder)!r:.200} can't be used ({why}): give a folder that exists")
    home = Path.home()
    for parent in (resolved, *resolved.parents):
        if os.path.exists(parent / MARK) and parent != home:  # noqa: PTH110  # pathlib raises where it may not look
            return parent
    return resolved


def state_folder(project: str | Path, org_id: str = "") -> Path:
    """Return the folder in Perdure's data folder with small files about a project, such as its edits; it may not exist.

    Args:
        project: its folder as `find_project_folder` returns it, or its name; empty: what belongs to no project.
        org_id: the organisation; empty: the default one.
    """
    name = hashlib.sha256(os.fsencode(project)).hexdigest()[:24] if os.fspath(project) else "global"
    return data_folder() / "projects" / org_id / name


def data_folder() -> Path:
    """Return Perdure's data folder, as the settings have it, without reading them: that takes ten times as long."""
    if home := os.environ.get("PERDURE_HOME", "").strip():
        return Path(home).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("perdure", appauthor=False))
