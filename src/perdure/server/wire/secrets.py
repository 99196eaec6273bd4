"""An agent's secrets as the wire shows and takes them: their names are told, their values never."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.secrets import Secret
from perdure.server.wire.base import WireRequest, stamp

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
