"""An agent's secrets as the wire shows and takes them: their names are told, their values never."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.core.ids import AgentId
from perdure.core.secret_access import put_secret
from perdure.core.secrets import Cipher, Secret
from perdure.core.tx import Tx
from perdure.server.wire.base import WireRequest, stamp

__all__ = ["MASKED", "SecretIn", "SecretsIn", "secret_shape", "secrets_of", "set_secrets"]

MASKED = ""
"""What a value is shown as. Sent back for a secret that is there, it changes nothing."""


class SecretIn(WireRequest):
    """A secret in the form in which an agent's state shows it."""

    key: str
    value: str = MASKED


SecretsIn = dict[str, str] | Sequence[SecretIn]
"""By name, as requests have it; or in the form of answers, for clients that send back what they were shown."""


def secrets_of(given: SecretsIn) -> dict[str, str]:
    return dict(given) if isinstance(given, dict) else {secret.key: secret.value for secret in given}


def set_secrets(tx: Tx, agent_id: AgentId, wanted: dict[str, str] | None, *, cipher: Cipher, at: datetime) -> None:
    """Have the agent own these secrets and no others; None leaves all as they are.

    Raises: InvalidInput, SecretKeyMissing, SecretUnreadable, NotFound.
    """
    if wanted is None:
        return
    had = {secret.name for secret in tx.secrets.list(agent_id)}
    for name in sorted(had - wanted.keys()):
        tx.secrets.delete(agent_id, name)
    for name, value in wanted.items():
        if value != MASKED or name not in had:
            put_secret(tx, agent_id, name, value, cipher=cipher, at=at)


def secret_shape(secret: Secret) -> dict[str, Any]:
    return {
        "agent_id": secret.owner_id,
        "key": secret.name,
        "value": MASKED,
        "value_enc": None,
        "description": None,
        "id": None,
        "created_at": stamp(secret.created_at),
        "updated_at": stamp(secret.updated_at),
        "created_by_id": None,
        "last_updated_by_id": None,
    }
