"""A project's folder, and Perdure's own folders for what belongs to it. Imports the standard library only at first: the
hooks of coding agents run it, each in a process of its own.

These are `projects/STORE/ORGANISATION/NAME` in the data folder. For what hooks need, NAME is a digest of the project's
path, which they know without the store. For what ends with an agent it is the agent's id, behind `http-` for what came
over HTTP."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

MARK = ".git"
"""A folder that contains this is a project, with all folders below it."""
STORE_FILE = "perdure.db"
"""The store in the data folder, as the settings have it."""
CONTEXT_FILE = "context.md"
"""In the folder of a project's path: what the next session of a coding agent begins with; in that of an empty path,
what the first one of a new project does."""
DIGEST_CHARS = 12
_PASSWORD = re.compile(r"(?<=//)([^/@:]*):[^/@]*@")


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
    home = Path(os.path.realpath(Path.home()))  # which may be a link
    for parent in (resolved, *resolved.parents):
        if os.path.exists(parent / MARK) and parent != home:  # noqa: PTH110  # pathlib raises where it may not look
            return parent
    return resolved


def state_folder(project: str | Path, org_id: str = "", store: str | Path | None = None) -> Path:
    """Return the folder with small files about a project, whose path is as `find_project_folder` returns it; it may not
    exist. `org_id` and `store` are as of `organisation_folder`."""
    return organisation_folder(org_id, store) / digest(project)


def organisation_folder(org_id: str = "", store: str | Path | None = None) -> Path:
    """Return the folder with those of one organisation, by default the default one, in the store of an address, by
    default the environment's; it may not exist."""
    if store is None:
        store = os.environ.get("PERDURE_STORE", "").strip() or data_folder() / STORE_FILE
    # A password may be changed. PostgreSQL's addresses are told by their form: the settings are slow to import.
    is_url = str(store).startswith(("postgres://", "postgresql://"))
    address = _PASSWORD.sub(r"\1@", str(store)) if is_url else os.path.realpath(Path(store).expanduser())
    return data_folder() / "projects" / digest(address) / (org_id or "default")


def digest(path: str | Path) -> str:
    """Return a digest of a path, name or address."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:DIGEST_CHARS]


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner can enter, and its parents. Raises: OSError."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def data_folder() -> Path:
    """Return Perdure's data folder, as the settings have it, without reading them: that takes ten times as long."""
    if home := os.environ.get("PERDURE_HOME", "").strip():
        return Path(home).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("perdure", appauthor=False))
