"""Values of a tool's environment, sealed when they are stored and opened when it runs."""

from __future__ import annotations

import base64
from dataclasses import replace

from perdure.core.errors import SecretKeyMissing, SecretUnreadable
from perdure.core.ids import ToolId
from perdure.core.secrets import REFERENCE, Cipher
from perdure.core.tools.environment import HIDDEN
from perdure.core.tools.spec import ToolCode
from perdure.storage.tx import Tx

__all__ = ["open_environment", "seal_environment"]


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
