"""Ask a person before something is deleted for good."""

from __future__ import annotations

import sys

from perdure.core.errors import InvalidInput


def confirm(question: str, *, action: str, yes: bool) -> bool:
    """Whether to go on: true with `yes`, else what the person at the terminal answers; Enter means no.

    Args:
        action: what the question is about, for the error: "delete the agent".
    Raises: InvalidInput: stdin is no terminal.
    """
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput(f"there is no terminal to ask at: pass --yes to {action} without a question")
    import typer

    return typer.confirm(question, default=False, err=True)
