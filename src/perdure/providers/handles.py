"""Handles and names of models: which of them a provider means, takes or lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.providers.discovery import Endpoint

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
