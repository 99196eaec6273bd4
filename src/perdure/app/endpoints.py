"""The addresses and keys of the providers that clients registered."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.errors import InvalidInput, SecretKeyMissing, SecretUnreadable
from perdure.core.providers import ModelProvider
from perdure.core.secrets import Cipher
from perdure.providers.discovery import Endpoint, endpoint_of_type
from perdure.storage.store import Store
from perdure.toolbox.provider_guard import ProviderGuard


async def stored_endpoints(store: Store, cipher: Cipher) -> Sequence[Endpoint]:
    """The addresses and keys of the providers that clients registered."""
    stored = await store.read(lambda tx: tx.providers.list())
    return [endpoint_of(provider, cipher) for provider in stored]


def endpoint_of(provider: ModelProvider, cipher: Cipher, api_key: str | None = None) -> Endpoint:
    """The address and key of a registered provider; `problem` says why they can't be used.

    Args:
        api_key: in place of the stored one.
    """
    try:
        if api_key is None and provider.sealed:
            api_key = cipher.decrypt(provider.sealed, bound_to=provider.binding).decode()
        return endpoint_of_type(
            provider.name,
            provider.provider_type,
            base_url=provider.base_url,
            api_key=api_key or "",
            guard=ProviderGuard(private=provider.private),
        )
    except (InvalidInput, SecretKeyMissing, SecretUnreadable) as error:
        return Endpoint(provider=provider.name, base_url="", problem=str(error), like="openai")
