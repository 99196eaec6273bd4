"""Units of work over secrets: seal and store one, open those that a tool or an MCP server needs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId
from perdure.core.mcp import McpServer, ServerSecrets, unseal_server
from perdure.core.secrets import ORGANISATION, REFERENCE, Cipher, Secret, check_secret
from perdure.core.tools.spec import ToolCode
from perdure.storage.tx import Tx

__all__ = [
    "open_secret",
    "open_server",
    "put_secret",
    "replace_secrets",
    "resolve_environment",
    "resolve_values",
    "secret_names",
]

NAMES_SHOWN = 10


def put_secret(tx: Tx, owner_id: str, name: str, value: str, *, cipher: Cipher, at: datetime) -> Secret:
    """The secret, made or changed. Raises: InvalidInput, SecretKeyMissing; NotFound: no agent of this id."""
    check_secret(name, value)
    sealed = cipher.encrypt(value.encode(), bound_to=_bound(tx, owner_id, name))
    return tx.secrets.put(owner_id, name, sealed, at=at)


def replace_secrets(tx: Tx, agent_id: AgentId, values: Mapping[str, str], *, cipher: Cipher, at: datetime) -> None:
    """Have the agent own exactly these secrets, name -> value. An empty value leaves a secret that is there as it is.

    Raises: InvalidInput, SecretKeyMissing, NotFound.
    """
    present = {secret.name for secret in tx.secrets.list(agent_id)}
    for name in sorted(present - values.keys()):
        tx.secrets.delete(agent_id, name)
    for name, value in values.items():
        if value or name not in present:
            put_secret(tx, agent_id, name, value, cipher=cipher, at=at)


def open_secret(tx: Tx, secret: Secret, *, cipher: Cipher) -> str:
    """Its value. Raises: SecretKeyMissing, SecretUnreadable."""
    return cipher.decrypt(secret.sealed, bound_to=_bound(tx, secret.owner_id, secret.name)).decode()


def resolve_values(tx: Tx, values: Mapping[str, str], *, cipher: Cipher) -> dict[str, str]:
    """The mapping with the organisation's secrets in place of `secret:NAME`.

    Raises: NotFound: there is no such secret; SecretKeyMissing, SecretUnreadable.
    """
    return {key: _value(tx, value, cipher) for key, value in values.items()}


def resolve_environment(
    tx: Tx, agent_id: AgentId | None, environment: Mapping[str, str], *, cipher: Cipher
) -> dict[str, str]:
    """What a tool is run with: its own environment, `secret:NAME` resolved, and over it the agent's own secrets.

    Raises: NotFound: there is no such secret; SecretKeyMissing, SecretUnreadable.
    """
    made = resolve_values(tx, environment, cipher=cipher)
    for secret in () if agent_id is None else tx.secrets.list(agent_id):
        made[secret.name] = open_secret(tx, secret, cipher=cipher)
    return made


def secret_names(tx: Tx, agent_id: AgentId | None, code: ToolCode) -> dict[str, str]:
    """Which variables of a tool's environment hold what nobody else may see: variable -> the secret's name. A value
    that stands in the tool itself may be a key too; it goes by the variable's name."""
    names = {
        key: value.removeprefix(REFERENCE).strip() if value.startswith(REFERENCE) else key
        for key, value in code.environment.items()
    }
    own = () if agent_id is None else tx.secrets.list(agent_id)
    return names | {key: key for key in code.sealed} | {secret.name: secret.name for secret in own}


def open_server(tx: Tx, server: McpServer, *, cipher: Cipher) -> ServerSecrets:
    """The secrets of an MCP server, those that it names by `secret:NAME` in their places.

    Raises: SecretKeyMissing, SecretUnreadable; NotFound: a secret that it names.
    """
    kept = unseal_server(server, cipher=cipher)
    return ServerSecrets(
        token=kept.token and resolve_values(tx, {"token": kept.token}, cipher=cipher)["token"],
        headers=resolve_values(tx, kept.headers, cipher=cipher),
        environment=resolve_values(tx, kept.environment, cipher=cipher),
    )


def _value(tx: Tx, value: str, cipher: Cipher) -> str:
    if not value.startswith(REFERENCE):
        return value
    name = value.removeprefix(REFERENCE).strip()
    secret = tx.secrets.find(ORGANISATION, name)
    if secret is None:
        names = [known.name for known in tx.secrets.list(ORGANISATION)][:NAMES_SHOWN]
        hint = f"there are {', '.join(names)}" if names else "there is none yet"
        raise NotFound("secret", name[:80], hint=f"{hint}; `perdure secret set NAME` makes one")
    return open_secret(tx, secret, cipher=cipher)


def _bound(tx: Tx, owner_id: str, name: str) -> str:
    return f"secret/{tx.org_id}/{owner_id}/{name}"
