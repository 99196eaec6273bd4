"""What to type to install a package into the environment that runs here, which is seldom the shell's own."""

from __future__ import annotations

import sys

__all__ = ["pip_line"]


def pip_line(what: str) -> str:
    """A command in backticks: `pip install what`, or with this interpreter's name where pip is another one's."""
    import shutil
    from pathlib import Path

    pip = shutil.which("pip")
    here = pip is not None and Path(pip).parent == Path(sys.executable).parent
    return f"`{'pip' if here else f'{sys.executable} -m pip'} install {what}`"
