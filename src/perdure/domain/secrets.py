"""Units of work on secrets: encrypt and store them, decrypt those that a tool needs."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from perdure.core.errors import NotFound
from perdure.core.ids import DEFAULT_ORG, AgentId
from perdure.core.runs import Callback
from perdure.core.secrets import (
    ORGANISATION,
    REFERENCE,
    Cipher,
    Secret,
    Variable,
    check_secret,
    hide_secret,
    with_secret,
)
from perdure.core.specs import ToolCode
from perdure.storage.tx import Tx

NAMES_SHOWN = 10


def put_secret(tx: Tx, owner_id: str, name: str, value: str, *, cipher: Cipher, at: datetime) -> Secret:
    """Create or replace a secret. Raises: InvalidInput, SecretKeyMissing; NotFound: no agent with this id."""
    check_secret(name, value)
    sealed = cipher.encrypt(value.encode(), bound_to=_binding(tx, owner_id, name))
    return tx.secrets.put(owner_id, name, sealed, at=at)


def replace_secrets(tx: Tx, agent_id: AgentId, values: Mapping[str, str], *, cipher: Cipher, at: datetime) -> None:
    """Replace the agent's secrets by `values`; an empty text keeps the stored value. Raises: as `put_secret`."""
    existing = {secret.name for secret in tx.secrets.list(agent_id)}
    for name in sorted(existing - values.keys()):
        tx.secrets.delete(agent_id, name)
    for name, value in values.items():
        if value or name not in existing:
            put_secret(tx, agent_id, name, value, cipher=cipher, at=at)


def open_secret(tx: Tx, secret: Secret, *, cipher: Cipher) -> str:
    """Return the secret's value. Raises: SecretKeyMissing, SecretUnreadable."""
    return cipher.decrypt(secret.sealed, bound_to=_binding(tx, secret.owner_id, secret.name)).decode()


def resolve_values(tx: Tx, values: Mapping[str, str], *, cipher: Cipher) -> dict[str, str]:
    """Return `values`, name -> value, with the organisation's secrets in place of values `secret:NAME`. Raises:
    NotFound: there is no such secret; SecretKeyMissing, SecretUnreadable."""
    return {key: _resolve_value(tx, value, cipher) for key, value in values.items()}


def resolve_environment(
    tx: Tx, agent_id: AgentId | None, environment: Mapping[str, str], *, cipher: Cipher
) -> dict[str, str]:
    """Return a tool's variables: those of all tools, overridden by its own environment with `secret:NAME` resolved, and
    that by the agent's secrets. Raises: NotFound: there is no such secret; SecretKeyMissing, SecretUnreadable."""
    result = {variable.name: open_variable(tx, variable, cipher) for variable in tx.sandbox.list_variables()}
    result |= resolve_values(tx, environment, cipher=cipher)
    for secret in () if agent_id is None else tx.secrets.list(agent_id):
        result[secret.name] = open_secret(tx, secret, cipher=cipher)
    return result


def secret_names(tx: Tx, agent_id: AgentId | None, code: ToolCode) -> dict[str, str]:
    """Return the variables of a tool that hold secrets: variable -> the secret's name.

    A literal value may be a key too; its name is the variable's.
    """
    names = {
        key: value.removeprefix(REFERENCE).strip() if value.startswith(REFERENCE) else key
        for key, value in code.environment.items()
    }
    own = () if agent_id is None else tx.secrets.list(agent_id)
    common = {variable.name: variable.name for variable in tx.sandbox.list_variables()}
    return common | names | {key: key for key in code.sealed} | {secret.name: secret.name for secret in own}


def seal_callback(callback: Callback, cipher: Cipher) -> Callback:
    """Return the callback with the part of its address that may hold a key encrypted. Raises: SecretKeyMissing."""
    url, secret = hide_secret(callback.url)
    if not secret:
        return callback
    sealed = cipher.encrypt(secret.encode("utf-8", "surrogatepass"), bound_to=f"callback/{url}")
    return replace(callback, url=url, sealed=base64.b64encode(sealed).decode())


def open_callback(callback: Callback, cipher: Cipher) -> Callback:
    """Return the callback with its whole address, decrypted. Raises: SecretKeyMissing, SecretUnreadable."""
    if not callback.sealed:
        return callback
    secret = cipher.decrypt(base64.b64decode(callback.sealed), bound_to=f"callback/{callback.url}")
    return replace(callback, url=with_secret(callback.url, secret.decode("utf-8", "surrogatepass")), sealed="")


def seal_variable(tx: Tx, variable: Variable, value: str, *, cipher: Cipher) -> Variable:
    """Return the variable with this value, encrypted. Raises: InvalidInput, SecretKeyMissing."""
    check_secret(variable.name, value)
    return replace(variable, sealed=cipher.encrypt(value.encode(), bound_to=_variable_binding(tx, variable)))


def open_variable(tx: Tx, variable: Variable, cipher: Cipher) -> str:
    """Return the value of a variable. Raises: SecretKeyMissing, SecretUnreadable."""
    return cipher.decrypt(variable.sealed, bound_to=_variable_binding(tx, variable)).decode()


def _variable_binding(tx: Tx, variable: Variable) -> str:
    """Return the purpose to which a variable's encrypted value is bound, so that it is no use in another row."""
    return f"sandbox/{tx.org_id}/{variable.id}"


def _resolve_value(tx: Tx, value: str, cipher: Cipher) -> str:
    """Return the value, or the organisation's secret that it names. Raises: NotFound."""
    if not value.startswith(REFERENCE):
        return value
    name = value.removeprefix(REFERENCE).strip()
    secret = tx.secrets.find(ORGANISATION, name)
    if secret is None:
        names = [known.name for known in tx.secrets.list(ORGANISATION)][:NAMES_SHOWN]
        hint = f"there are {', '.join(names)}" if names else "there is none yet"
        org = "" if tx.org_id == DEFAULT_ORG else f" --org {tx.org_id}"
        raise NotFound("secret", name[:80], hint=f"{hint}; `perdure secret set NAME{org}` makes one")
    return open_secret(tx, secret, cipher=cipher)


def _binding(tx: Tx, owner_id: str, name: str) -> str:
    """Return the purpose to which an encrypted secret is bound, so that it is no use in another row."""
    return f"secret/{tx.org_id}/{owner_id}/{name}"
