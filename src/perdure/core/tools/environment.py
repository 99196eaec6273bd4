"""The variables of a custom tool: what of them is stored, shown, and given to the tool.

A value `secret:NAME` is stored as it is. Any other may be a key that somebody put in directly, so it is encrypted like
a secret and never shown again: an empty value stands for it, and leaves it as it is when it is sent back.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING

from perdure.core.errors import SecretKeyMissing, SecretUnreadable
from perdure.core.ids import ToolId
from perdure.core.secrets import REFERENCE, Cipher
from perdure.core.tools.spec import ToolCode

if TYPE_CHECKING:
    from perdure.core.tx import Tx

__all__ = ["HIDDEN", "is_sealed", "open_environment", "seal_environment", "shown_environment", "without_values"]

HIDDEN = ""


def seal_environment(tx: Tx, tool_id: ToolId, code: ToolCode, *, kept: ToolCode | None, cipher: Cipher) -> ToolCode:
    """The code as it is stored, its values encrypted. One that is as it was keeps its bytes.

    Args:
        kept: what is stored of this tool; None: nothing.
    Raises: SecretKeyMissing.
    """
    plain = {name: value for name, value in code.environment.items() if value.startswith(REFERENCE)}
    sealed = dict(code.sealed)
    for name in code.environment.keys() - plain.keys():
        value = code.environment[name]
        before = None if kept is None else _kept(tx, tool_id, kept, name, value, cipher)
        sealed[name] = before or _seal(tx, tool_id, name, value, cipher)
    return replace(code, environment=plain, sealed=sealed)


def open_environment(tx: Tx, tool_id: ToolId, code: ToolCode, *, cipher: Cipher) -> dict[str, str]:
    """The variables with their values; `secret:NAME` stays. Raises: SecretKeyMissing, SecretUnreadable."""
    return {**code.environment, **{name: _open(tx, tool_id, name, code, cipher) for name in code.sealed}}


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


def _kept(tx: Tx, tool_id: ToolId, kept: ToolCode, name: str, value: str, cipher: Cipher) -> str | None:
    """The stored bytes of a value that is as it was, or was not given anew; None: it is another one."""
    if name in kept.sealed:
        try:
            same = value == HIDDEN or value == _open(tx, tool_id, name, kept, cipher)
        except (SecretKeyMissing, SecretUnreadable):  # the key is another one: it is set anew
            same = False
        return kept.sealed[name] if same else None
    if value == HIDDEN and name in kept.environment:  # stored by an older version
        return _seal(tx, tool_id, name, kept.environment[name], cipher)
    return None


def _seal(tx: Tx, tool_id: ToolId, name: str, value: str, cipher: Cipher) -> str:
    return base64.b64encode(cipher.encrypt(value.encode(), bound_to=_bound(tx, tool_id, name))).decode()


def _open(tx: Tx, tool_id: ToolId, name: str, code: ToolCode, cipher: Cipher) -> str:
    return cipher.decrypt(base64.b64decode(code.sealed[name]), bound_to=_bound(tx, tool_id, name)).decode()


def _bound(tx: Tx, tool_id: ToolId, name: str) -> str:
    return f"tool/{tx.org_id}/{tool_id}/{name}"
