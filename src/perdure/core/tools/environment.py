"""The variables of a custom tool, as they are stored and shown.

A reference `secret:NAME` is stored in plain text. Any other value may be a key, so it is encrypted like a secret and
shown as an empty value; an empty value that is sent back keeps it.
"""

from __future__ import annotations

from dataclasses import replace

from perdure.core.secrets import REFERENCE
from perdure.core.tools.spec import ToolCode

HIDDEN = ""


def visible_environment(code: ToolCode) -> dict[str, str]:
    """Return the variables for display: only references have a value."""
    plain = {name: value if value.startswith(REFERENCE) else HIDDEN for name, value in code.environment.items()}
    return dict(sorted({**plain, **dict.fromkeys(code.sealed, HIDDEN)}.items()))


def is_sealed(code: ToolCode) -> bool:
    """Return whether all values are encrypted or references."""
    return all(value.startswith(REFERENCE) for value in code.environment.values())


def without_values(code: ToolCode) -> ToolCode:
    """Return the code for display."""
    return replace(code, environment=visible_environment(code), sealed={})
