"""Build the model of a provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from perdure.core.models import NO_TRAITS, ModelTraits
from perdure.providers.discovery import Endpoint
from perdure.providers.handles import is_large

if TYPE_CHECKING:
    from perdure.providers.openai_chat import Connections
    from perdure.providers.retrying import Retrying


def build_model(
    endpoint: Endpoint,
    name: str,
    connections: dict[str, Connections],
    *,
    traits: Callable[[], ModelTraits] = lambda: NO_TRAITS,
    learn: Callable[..., None] = lambda **traits: None,
    look: Callable[[], Awaitable[None]] | None = None,
) -> Retrying:
    """The model of this name at a provider, with retries; calls in its text are read, but not of the large hosts.

    Args:
        connections: provider -> what its models share; those of a new provider are added.
        traits: what is known of the model.
        learn: takes the traits that its answers show, by their names.
        look: learns what its server says of it.
    Raises: InvalidInput: an address or key that can't be used.
    """
    from perdure.providers.retrying import Retrying

    provider = endpoint.entry
    key = endpoint.api_key if endpoint.has_key else None
    if endpoint.kind == "direct":
        from perdure.providers.pydantic_ai import DirectModel

        base_url = endpoint.base_url if endpoint.base_url != provider.default_url else None
        return Retrying(
            DirectModel(provider=provider.name, model=name, api_key=key, base_url=base_url, guard=endpoint.guard)
        )
    from perdure.providers.openai_chat import Connections, OpenAIChat

    chat = OpenAIChat(
        model=name,
        base_url=endpoint.base_url,
        api_key=key,
        provider=provider.name,
        connections=connections.setdefault(endpoint.provider, Connections(guard=endpoint.guard)),
        reasoning_back=provider.reasoning_back,
        traits=traits,
        learn=learn,
        look=look,
    )
    if is_large(endpoint, name):
        return Retrying(chat)
    from perdure.providers.text_calls.model import TextCalls

    return Retrying(TextCalls(chat, traits=traits, learn=learn))
