"""The variables of a custom tool: what of them is stored, shown, and given to the tool.

A value `secret:NAME` is stored as it is. Any other may be a key that somebody put in directly, so it is encrypted like
a secret and never shown again: an empty value stands for it, and leaves it as it is when it is sent back.
"""

from __future__ import annotations

from dataclasses import replace

from perdure.core.secrets import REFERENCE
from perdure.core.tools.spec import ToolCode

__all__ = ["HIDDEN", "is_sealed", "shown_environment", "without_values"]

HIDDEN = ""


def shown_environment(code: ToolCode) -> dict[str, str]:
    """The variables as anybody may see them: only a reference has a value."""
    plain = {name: value if value.startswith(REFERENCE) else HIDDEN for name, value in code.environment.items()}
    return dict(sorted({**plain, **dict.fromkeys(code.sealed, HIDDEN)}.items()))


def is_sealed(code: ToolCode) -> bool:
    """Whether all its values are encrypted or references, as they are stored."""
    return all(value.startswith(REFERENCE) for value in code.environment.values())


def without_values(code: ToolCode) -> ToolCode:
    """The code as anybody may see it."""
    return replace(code, environment=shown_environment(code), sealed={})
