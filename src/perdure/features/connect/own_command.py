"""How this program is started again, by another program or by one of its own hooks."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def own_command() -> list[str]:
    """Return the command by which another program can start this one, whatever its PATH and environment."""
    script = Path(sys.argv[0])
    if script.name == "perdure" and script.is_absolute() and os.access(script, os.X_OK):
        return [str(script)]
    import shutil  # not sooner: an installed hook, for which a person waits, has no need of it

    if found := shutil.which("perdure"):
        return [str(Path(found).absolute())]
    return [sys.executable, "-P", "-m", "perdure"]  # -P: no module of the folder that it is started in
