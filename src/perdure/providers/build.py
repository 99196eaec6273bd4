"""Handles and names of models: which of them a provider means, takes or lists; and how the model of one is built."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from perdure.core.models import NO_TRAITS, ModelTraits
from perdure.providers.discovery import Endpoint

if TYPE_CHECKING:
    from perdure.providers.openai_chat import Connections
    from perdure.providers.retrying import Retrying


LARGE_HOSTS = ("openai", "anthropic", "google")
"""Providers whose own models read the engine's messages as JSON; also by the names that OpenRouter has for them."""


class Handles(list[str]):
    """The known handles. `in` is also true for handles that a provider accepts without listing them."""

    def __init__(self, handles: Sequence[str], takes: Callable[[str], bool]) -> None:
        super().__init__(handles)
        self._takes = takes

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, str) and self._takes(handle)


def is_large(endpoint: Endpoint, name: str) -> bool:
    """Whether this is a model of one of the large hosts."""
    provider = endpoint.entry
    if provider.name == "openrouter":
        return name.partition("/")[0] in LARGE_HOSTS
    if endpoint.local or provider.name not in LARGE_HOSTS:
        return False
    from perdure.providers.openai_chat.endpoint import is_openai  # with an HTTP client: slow

    return provider.name != "openai" or is_openai(endpoint.base_url)


def is_served(name: str, listed: Sequence[str]) -> bool:
    """Whether a server of local models has this one. Ollama's `qwen3` is its `qwen3:latest`."""
    return name in listed or f"{name}:latest" in listed or name.removesuffix(":latest") in listed


def is_listed(name: str, listed: Sequence[str]) -> bool:
    """Whether a provider's list has this name, or another one of the same model."""
    if name in listed or name.partition(":")[0] in listed:  # OpenRouter's ways to the same model, such as `:nitro`
        return True
    base = f"{name.removesuffix('-latest')}-"  # lists have the day of a model's release, people often don't
    return any(other.startswith(base) and other[len(base) :].isdigit() for other in listed)


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
    from perdure.providers.portable_tools import PortableTools
    from perdure.providers.retrying import Retrying

    provider = endpoint.entry
    key = endpoint.api_key if endpoint.has_key else None
    if endpoint.kind == "direct":
        from perdure.providers.pydantic_ai import DirectModel

        base_url = endpoint.base_url if endpoint.base_url != provider.default_url else None
        direct = DirectModel(provider=provider.name, model=name, api_key=key, base_url=base_url, guard=endpoint.guard)
        return Retrying(PortableTools(direct))
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
        return Retrying(PortableTools(chat))
    from perdure.providers.text_calls.model import TextCalls

    return Retrying(PortableTools(TextCalls(chat, traits=traits, learn=learn)))
