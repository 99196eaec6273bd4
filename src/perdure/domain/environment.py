"""What a custom tool is run with: its environment, encrypted in the store and decrypted for a run, and its agent."""

from __future__ import annotations

import base64
from dataclasses import replace

from perdure.core.errors import SecretKeyMissing, SecretUnreadable
from perdure.core.ids import AgentId, ConversationId, ToolId
from perdure.core.secrets import REFERENCE, Cipher
from perdure.core.specs import HIDDEN_VALUE, ToolCode, ToolInputs
from perdure.domain.secrets import resolve_environment, secret_names
from perdure.storage.tx import Tx

AGENT_VARIABLE = "LETTA_AGENT_ID"
"""The variable with the id of the agent that calls, as tools for Letta's server read it."""


def seal_environment(tx: Tx, tool_id: ToolId, code: ToolCode, *, stored: ToolCode | None, cipher: Cipher) -> ToolCode:
    """Return the code with its values encrypted. A value that is unchanged from `stored`, the tool's stored code (None:
    it is new), keeps its bytes. Raises: SecretKeyMissing."""
    plain = {name: value for name, value in code.environment.items() if value.startswith(REFERENCE)}
    sealed = dict(code.sealed)
    for name in code.environment.keys() - plain.keys():
        value = code.environment[name]
        before = None if stored is None else _keep_sealed(tx, tool_id, stored, name, value, cipher)
        sealed[name] = before or _seal(tx, tool_id, name, value, cipher)
    return replace(code, environment=plain, sealed=sealed)


def open_environment(tx: Tx, tool_id: ToolId, code: ToolCode, *, cipher: Cipher) -> dict[str, str]:
    """Return the variables with their values; `secret:NAME` stays. Raises: SecretKeyMissing, SecretUnreadable."""
    return {**code.environment, **{name: _open(tx, tool_id, name, code, cipher) for name in code.sealed}}


def reseal_environment(tx: Tx, tool_id: ToolId, code: ToolCode, *, cipher: Cipher) -> ToolCode:
    """Return the code with all its values encrypted again. Raises: SecretKeyMissing, SecretUnreadable."""
    values = {name: _open(tx, tool_id, name, code, cipher) for name in code.sealed}
    return replace(code, sealed={name: _seal(tx, tool_id, name, value, cipher) for name, value in values.items()})


def load_inputs(
    tx: Tx,
    tool_id: ToolId,
    agent_id: AgentId | None,
    conversation_id: ConversationId | None = None,
    *,
    cipher: Cipher,
    code: ToolCode | None = None,
) -> ToolInputs:
    """Return the inputs of a call of this tool by this agent, if any.

    Args:
        conversation_id: the conversation whose blocks the call sees; None: the agent's first.
        code: the code of a tool that is not stored; None: the stored code.
    Raises: NotFound, SecretKeyMissing, SecretUnreadable.
    """
    code = code or tx.tools.code(tool_id)
    values = open_environment(tx, tool_id, code, cipher=cipher) if code else {}
    environment = resolve_environment(tx, agent_id, values, cipher=cipher)
    secrets = secret_names(tx, agent_id, code) if code else {}
    if agent_id is None:
        return ToolInputs(code, environment, secrets, None, ())
    seq = 0 if conversation_id is None else tx.conversations.get(conversation_id).seq
    blocks = tx.blocks.list_by_agent(agent_id, seq) if code is not None and code.takes_agent else ()
    return ToolInputs(code, {AGENT_VARIABLE: agent_id, **environment}, secrets, tx.agents.get(agent_id), blocks)


def _keep_sealed(tx: Tx, tool_id: ToolId, stored: ToolCode, name: str, value: str, cipher: Cipher) -> str | None:
    """Return the variable's encrypted value in `stored`, if `value` equals it or is hidden; None: `value` is new."""
    if name in stored.sealed:
        try:
            same = value == HIDDEN_VALUE or value == _open(tx, tool_id, name, stored, cipher)
        except (SecretKeyMissing, SecretUnreadable):  # the key changed: encrypt again
            same = False
        return stored.sealed[name] if same else None
    if value == HIDDEN_VALUE and name in stored.environment:  # stored by an older version
        return _seal(tx, tool_id, name, stored.environment[name], cipher)
    return None


def _seal(tx: Tx, tool_id: ToolId, name: str, value: str, cipher: Cipher) -> str:
    """Return the value of the variable `name`, encrypted, as base64."""
    return base64.b64encode(cipher.encrypt(value.encode(), bound_to=_binding(tx, tool_id, name))).decode()


def _open(tx: Tx, tool_id: ToolId, name: str, code: ToolCode, cipher: Cipher) -> str:
    """Return the decrypted value of the variable `name`. Raises: SecretKeyMissing, SecretUnreadable."""
    return cipher.decrypt(base64.b64decode(code.sealed[name]), bound_to=_binding(tx, tool_id, name)).decode()


def _binding(tx: Tx, tool_id: ToolId, name: str) -> str:
    """Return what an encrypted value is bound to, so that it is no use in another tool."""
    return f"tool/{tx.org_id}/{tool_id}/{name}"
