"""The kinds of providers, where one of them is, and the port of the code that speaks its API.

`providers.toml` lists the kinds; `perdure.providers.NAME.api` has as `API` what speaks the API of that name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from perdure.core.incoming.addresses import is_near
from perdure.core.models import NO_TRAITS, Model, ModelTraits
from perdure.core.text.tables import read_table
from perdure.providers.masking import HostGuard, without_secrets

NO_KEY = "none"  # what servers without keys are sent; some refuse a request without the header


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderKind:
    """How a provider is found in the environment and called.

    Args:
        api_name: the folder of `perdure.providers` that speaks its API.
        keys, urls: variables of its key and its address.
        default_url: its address where no variable gives one; empty: it runs models that the user chooses.
        port: where it listens on this machine by default.
        default_model: the model without a listing; empty: unknown until the provider lists its models.
        preferred: patterns of models that are chosen first; * matches anything.
        reasoning_back: the field of earlier reasoning in a request; None: it is not sent back.
        is_large: its own models read the engine's messages as JSON.
        embeds: whether it has embeddings behind OpenAI's API.
        aliases: other names that handles may begin with.
        wire_type: its type in Letta's API.
        trace_name: its name in OpenTelemetry's conventions.
    """

    name: str
    api_name: str = "openai_chat"
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    default_url: str = ""
    port: int = 0
    default_model: str = ""
    preferred: tuple[str, ...] = ()
    reasoning_back: str | None = None
    is_large: bool = False
    embeds: bool = True
    aliases: tuple[str, ...] = ()
    wire_type: str
    trace_name: str

    @property
    def local(self) -> bool:
        """Whether it runs models that the user chooses, so that each is tried with a tool call."""
        return not self.default_url

    @property
    def local_url(self) -> str:
        """Its default address on this machine; empty: it has none."""
        return f"http://127.0.0.1:{self.port}/v1" if self.port else ""

    @property
    def api(self) -> ProviderApi:
        """The code that speaks its API."""
        api: ProviderApi = import_module(f"perdure.providers.{self.api_name}.api").API
        return api


@dataclass(frozen=True, kw_only=True)  # without slots, for what is cached
class Endpoint:
    """The address and key of a provider.

    Args:
        base_url: where requests go; for OpenAI's API with the `/v1`, without a / at the end. It may hold a password;
            `address` does not.
        api_key: "none" for a server that needs none.
        source: the names of its variables, or "port 11434".
        problem: why it can't be used, such as a malformed address; empty if none is known.
        like: the entry of `PROVIDERS` that it works as; empty: that of its own name.
        type: its type in the words of the client who registered it; empty: nobody did.
        guard: of an address that a client chose; None: requests go wherever it leads.
    """

    provider: str
    base_url: str = field(repr=False)
    api_key: str = field(default=NO_KEY, repr=False)
    source: str = ""
    problem: str = ""
    like: str = ""
    type: str = ""
    guard: HostGuard | None = None

    @cached_property
    def entry(self) -> ProviderKind:
        """The provider that it works as."""
        name = self.like or self.provider
        return SELF_SERVED if name == SELF_SERVED.name else PROVIDERS[name]

    @cached_property
    def address(self) -> str:
        """`base_url` without secrets."""
        return without_secrets(self.base_url)

    @property
    def has_key(self) -> bool:
        """Whether a key was given."""
        return self.api_key != NO_KEY

    @cached_property
    def local(self) -> bool:
        """Whether the user chooses its models: a kind of local server, one without a key, or one near by with OpenAI's
        API, whose clients often demand some key."""
        is_plain = self.entry.name == "openai"
        return self.entry.local or not self.has_key or (is_plain and is_near(urlsplit(self.base_url).hostname or ""))

    def is_large(self, name: str) -> bool:
        """Whether its model of this name is one of the large hosts."""
        if self.entry.name == "openrouter":
            return name.partition("/")[0] in LARGE_HOSTS
        if not self.entry.is_large or self.local:
            return False
        from perdure.providers.openai_endpoint import is_openai  # with an HTTP client: slow

        return self.entry.name != "openai" or is_openai(self.base_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """What a model is built with.

    Args:
        name: the provider's name of the model.
        connections: provider -> what its models share; those of a new provider are added.
        traits: what is known of the model.
        learn: is told the traits that the model's answers show, as keywords with the names of `ModelTraits`.
        look: asks the server what it says of the model, and learns that.
    """

    endpoint: Endpoint
    name: str
    connections: dict[str, Any] = field(default_factory=dict)
    traits: Callable[[], ModelTraits] = lambda: NO_TRAITS
    learn: Callable[..., None] = lambda **traits: None
    look: Callable[[], Awaitable[None]] | None = None

    @property
    def api_key(self) -> str | None:
        """The key; None: there is none."""
        return self.endpoint.api_key if self.endpoint.has_key else None


class ModelWrapper:
    """Base class of a model that wraps another one and changes its requests or answers."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def aclose(self) -> None:
        """Close the model, if it can be closed."""
        if (close := getattr(self.model, "aclose", None)) is not None:
            await close()


class ProviderApi(Protocol):
    """How a kind of provider is spoken to. Its module imports no HTTP client before a model is built."""

    def complete_path(self, provider: ProviderKind, path: str, query: str) -> tuple[str, str]:
        """The path and query of the address that a person gave, as requests take it."""

    def listing_request(self, endpoint: Endpoint) -> tuple[str, Mapping[str, str], Mapping[str, int]]:
        """(URL, headers, query parameters) of the GET request for the list of models."""

    def build(self, source: ModelSource) -> Model:
        """The model, without retries; its coroutine `payload(request)` gives the body by which it would send a request.
        Raises: InvalidInput: an address or key that can't be used."""


def _provider(name: str, entry: Mapping[str, Any]) -> ProviderKind:
    """A provider from its table in `providers.toml`."""
    variables = {"keys": [f"{name.upper()}_API_KEY"], "urls": [f"{name.upper()}_BASE_URL"]}
    fields: dict[str, Any] = {**variables, "wire_type": name, "trace_name": name, **entry}
    lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
    return ProviderKind(name=name, **fields | lists)


PROVIDERS: Mapping[str, ProviderKind] = {
    name: _provider(name, entry) for name, entry in read_table(__file__, "providers.toml").items()
}
"""Name -> provider, in the order in which one is chosen."""

SELF_SERVED = ProviderKind(name="local", wire_type="local", trace_name="local")
"""The models that this process serves itself."""

ALIASES: Mapping[str, str] = {alias: one.name for one in PROVIDERS.values() for alias in one.aliases}
"""Other names for a provider that handles may begin with."""

LARGE_HOSTS = frozenset(one.name for one in PROVIDERS.values() if one.is_large)
"""Providers whose own models read the engine's messages as JSON; also by the names that OpenRouter has for them."""
