"""What to type to install a package into the environment that runs here, which is seldom the shell's own."""

from __future__ import annotations

import sys

NAMED_HERE = " with the PYTHON that `perdure doctor` names"


def pip_line(what: str) -> str:
    """Return the command, in backticks, that installs the package `what` into the Python that runs here.

    Where the shell's pip is another Python's, the command names no path, which clients of a server must not learn: it
    says that `perdure doctor` has it.
    """
    import shutil
    from pathlib import Path

    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return f"`pip install {what}`"
    return f"`PYTHON -m pip install {what}`{NAMED_HERE}"
