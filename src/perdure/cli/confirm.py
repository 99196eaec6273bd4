"""A person is asked before something is gone for good."""

from __future__ import annotations

import sys

from perdure.core.errors import InvalidInput

__all__ = ["agreed"]


def agreed(question: str, *, whether: str) -> bool:
    """What a person answers; no is what Enter says.

    Args:
        whether: what it is about, behind "asked whether".
    Raises: InvalidInput: nobody is there.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput(f"nobody is there to be asked whether {whether}: say so with --yes")
    import typer

    return typer.confirm(question, default=False, err=True)
