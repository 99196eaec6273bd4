"""The models this process can reach, by handle `provider/model`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from perdure.core.errors import ModelNotFound
from perdure.core.models import Model, ModelDelta, ModelReply, ModelRequest
from perdure.providers.catalog import facts_of
from perdure.providers.choosing import BUILT_IN as EXTRACTIVE
from perdure.providers.choosing import Choice, ToolProbe, choose_model, choose_offline, probe_tools
from perdure.providers.discovery import (
    ALIASES,
    PROVIDERS,
    Endpoint,
    Listing,
    is_chat_model,
    list_models,
    local_providers,
    may_probe,
    probe_local,
)

if TYPE_CHECKING:
    from perdure.providers.openai_chat import Connections

__all__ = ["EXTRACTIVE", "Handles", "ModelMissing", "ModelRegistry"]

CACHED_MAX = 256
LOOK_FOR_TIMEOUT_S = 1.0


class Handles(list[str]):
    """The known handles. `in` is also true for handles that a provider accepts without listing them."""

    def __init__(self, known: Sequence[str], takes: Callable[[str], bool]) -> None:
        super().__init__(known)
        self._takes = takes

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, str) and self._takes(handle)


class ModelMissing(ModelNotFound):
    """There is no such model; `helps` says what to do, or is empty."""

    code = ModelNotFound.code

    def __init__(self, handle: str, *, known: Sequence[str], helps: str) -> None:
        super().__init__(handle, known=known)
        self.helps = helps
        if helps:
            self.args = (f"{self}. {helps}",)


class ModelRegistry:
    """`Models` of the program itself, the built-in model, and the models of the providers.

    Ollama and LM Studio need no variable: their default ports are known. `find` returns a model of theirs whether they
    run or not, so that an agent keeps its model; `takes` says whether a new agent may have one, which depends on their
    answer to `probe_local` or `look_for`.

    `find`, `takes` and `handles` use no network and may be called from any thread; async methods only in the event
    loop.

    Args:
        models: handle -> model; they win over a provider's of the same handle.
        endpoints: the providers of the environment, in the order in which one is chosen.
    """

    def __init__(self, models: Mapping[str, Model] | None = None, *, endpoints: Sequence[Endpoint] = ()) -> None:
        self._models = dict(models or {})
        self._own_handles = frozenset(self._models)
        self._endpoints = {one.provider: one for one in endpoints}
        self._default_endpoints = {
            one.provider: one for one in local_providers() if one.provider not in self._endpoints
        }
        self._unconfigured = frozenset(self._default_endpoints)  # names of servers that no variable names
        self._unreachable: set[str] = set()  # names of local servers that did not answer last time
        self._listings: dict[str, Listing] = {}
        self._cache: dict[str, _LazyModel] = {}
        self._adapters: dict[str, _Adapter] = {}
        self._lock = threading.Lock()

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The providers of the environment, and those that answer on this machine."""
        return list(self._endpoints.values())

    @property
    def listings(self) -> Mapping[str, Listing]:
        """Provider -> its listing, of those that were asked."""
        return dict(self._listings)

    def find(self, handle: str) -> Model | None:
        if (model := self._models.get(handle)) is not None:
            return model
        if handle == EXTRACTIVE:
            # Loaded on demand: its patterns take a quarter of the time of `import perdure`.
            from perdure.providers.extractive import ExtractiveModel

            return self._models.setdefault(handle, ExtractiveModel())
        if (there := self.provider_of(handle)) is None:
            return None
        endpoint, name = there
        with self._lock:
            key = f"{endpoint.provider}/{name}"
            if key not in self._cache:
                if len(self._cache) >= CACHED_MAX:  # names come from clients, so the cache is bounded
                    self._cache.pop(next(iter(self._cache)))
                adapter = self._adapters.setdefault(endpoint.provider, _Adapter(endpoint))
                self._cache[key] = _LazyModel(adapter, name)
            return self._cache[key]

    def handles(self) -> Sequence[str]:
        listed = [
            f"{provider}/{name}"
            for provider, listing in self._listings.items()
            for name in listing.models
            if is_chat_model(name)
        ]
        return Handles(sorted({EXTRACTIVE, *self._models, *listed}), self.takes)

    def window_tokens(self, handle: str) -> int | None:
        """What the catalog says, a cautious guess for a model that it does not have; None for a program's own model and
        the built-in one, which need no catalog. Raises: InvalidInput: a catalog of the user's that can't be read."""
        return None if handle == EXTRACTIVE or handle in self._own_handles else facts_of(handle).window_tokens

    def takes(self, handle: str) -> bool:
        """Whether a new agent may have this model. The provider's listing decides; without one the answer is yes,
        except for a server that no variable names and that does not answer."""
        if handle == EXTRACTIVE or handle in self._models:
            return True
        if (there := self.provider_of(handle)) is None:
            return False
        endpoint, name = there
        if endpoint.provider in self._unreachable:  # a configured address counts, up or down
            return endpoint.provider not in self._unconfigured
        listing = self._listings.get(endpoint.provider)
        if listing is None or listing.problem:
            return True
        if endpoint.local:
            return _is_local(name, listing.models)
        return not listing.models or (_is_listed(name, listing.models) and is_chat_model(name))

    async def look_for(self, handle: str) -> None:
        """Load the models of a handle's local server again, if the handle is unknown. At most 1 s; never raises."""
        match = self.provider_of(handle) if isinstance(handle, str) else None
        if handle in self._models or match is None or not match[0].local:
            return
        endpoint, name = match
        listing = self._listings.get(endpoint.provider, Listing())
        if endpoint.provider not in self._unreachable and _is_local(name, listing.models):
            return
        if endpoint.provider not in self._unconfigured:
            self._record(endpoint, await list_models(endpoint, timeout_s=LOOK_FOR_TIMEOUT_S))
        elif may_probe():
            answered = dict(await probe_local([endpoint]))
            self._record(endpoint, answered.get(endpoint, Listing(problem=f"nobody answers on {endpoint.source}")))

    def not_found(self, handle: str) -> ModelNotFound:
        """The error for a missing model: which models there are, and what to do."""
        return ModelMissing(handle, known=self.handles(), helps=self.what_helps(handle))

    def what_helps(self, handle: str) -> str:
        """What to do to make this model available; empty for an unknown provider."""
        prefix, _, name = handle.partition("/")
        provider = PROVIDERS.get(ALIASES.get(prefix, prefix))
        if provider is None:
            return ""
        endpoint = self._endpoints.get(provider.name)
        if provider.name in self._unconfigured and (endpoint is None or provider.name in self._unreachable):
            port = (endpoint or self._default_endpoints[provider.name]).source
            return f"Nobody answers on {port} of this machine: start {provider.name}, or set {provider.urls[0]}"
        if endpoint is None:
            return f"Set {' or '.join(provider.keys or provider.urls)}"
        if endpoint.problem:
            return endpoint.problem
        get_it = f": `ollama pull {name}` gets it" if provider.name == "ollama" else ""
        return f"{endpoint.address} has no model {name!r}{get_it}"

    def provider_of(self, handle: str) -> tuple[Endpoint, str] | None:
        """The provider of this handle, and the model's name there; None if there is none.

        At a provider's own address its listing decides. Any other server accepts every name: it may have more models
        than it lists, and gets new ones while this process runs.
        """
        prefix, slash, name = handle.partition("/")
        prefix = ALIASES.get(prefix, prefix)
        endpoint = self._endpoints.get(prefix) or self._default_endpoints.get(prefix)
        if endpoint is None or not slash or not name.strip() or endpoint.problem:
            return None
        known = self._listings.get(prefix, Listing()).models
        decides = bool(known) and endpoint.base_url == PROVIDERS[prefix].default_url
        return (endpoint, name) if not decides or _is_listed(name, known) else None

    async def refresh(self) -> Mapping[str, Listing]:
        """Ask all providers for their models at once; at most 3 s. Never raises."""
        endpoints = self.endpoints
        answers = await asyncio.gather(*map(list_models, endpoints))
        for endpoint, listing in zip(endpoints, answers, strict=True):
            self._record(endpoint, listing)
        return self.listings

    def _record(self, endpoint: Endpoint, listing: Listing) -> None:
        """Store the listing of a provider."""
        name = endpoint.provider
        if endpoint.local:
            (self._unreachable.add if listing.problem else self._unreachable.discard)(name)
        if listing.problem and name in self._default_endpoints:
            return
        if self._default_endpoints.pop(name, None) is not None:
            self._endpoints[name] = endpoint
        # An older listing is better than a problem.
        if not listing.problem or not self._listings.get(name, Listing()).models:
            self._listings[name] = listing

    def choose_offline(self, setting: str) -> Choice:
        """The model of agents made without one, by what is known without network."""
        return choose_offline(setting, self.endpoints)

    async def choose(self, setting: str, *, progress: Callable[[str], None] = lambda what: None) -> Choice:
        """The model of agents made without one, after asking every provider and, if none has a model, the servers on
        this machine; the registry then knows these.

        Args:
            setting: a handle that wins, or nothing.
            progress: gets the current step in a few words.
        """
        if setting:
            return choose_offline(setting, ())
        if self._endpoints.keys() - self._listings.keys():
            progress(f"asking {', '.join(self._endpoints)} for models…")
            await self.refresh()

        async def probe(endpoint: Endpoint, name: str) -> ToolProbe:
            progress(f"trying a tool call on {endpoint.provider}/{name}…")
            return await probe_tools(endpoint, name)

        return await choose_model(
            setting, self.endpoints, self._listings, probe_local=self.probe_local, probe_tools=probe
        )

    async def probe_local(self) -> Sequence[tuple[Endpoint, Listing]]:
        """The servers on this machine that answer and that no variable names; the registry remembers which answer."""
        there = [(one, listing) for one, listing in await probe_local() if one.provider not in self._endpoints]
        for one, listing in there:
            self._record(one, listing)
        if may_probe():
            self._unreachable |= self._default_endpoints.keys()
        return there

    async def close(self) -> None:
        """Close the connections of the providers' models; the program's own models stay open."""
        with self._lock:
            made, self._cache = list(self._cache.values()), {}
            endpoints, self._adapters = list(self._adapters.values()), {}
        await asyncio.gather(*(model.close() for model in made))
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))


class _Adapter:
    """Makes the models of one endpoint, which share its connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoints = endpoint
        self._connections: Connections | None = None

    def model(self, name: str) -> Model:
        """The model, with retries. Raises: InvalidInput."""
        from perdure.providers.retrying import Retrying

        endpoint = self.endpoints
        key = endpoint.api_key if endpoint.has_key else None
        own = endpoint.base_url != PROVIDERS[endpoint.provider].default_url
        if endpoint.kind == "direct":
            from perdure.providers.pydantic_ai import DirectModel

            base_url = endpoint.base_url if own else None
            return Retrying(DirectModel(provider=endpoint.provider, model=name, api_key=key, base_url=base_url))
        from perdure.providers.openai_chat import Connections, OpenAIChat

        self._connections = self._connections or Connections()
        chat = OpenAIChat(
            model=name,
            base_url=endpoint.base_url,
            api_key=key,
            provider=endpoint.provider,
            connections=self._connections,
            reasoning_back=PROVIDERS[endpoint.provider].reasoning_back,
        )
        return Retrying(chat)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.aclose()


class _LazyModel:
    """A provider's model that is made at its first call: the import takes longer than a transaction may."""

    def __init__(self, endpoint: _Adapter, name: str) -> None:
        self._endpoint, self._name = endpoint, name
        self._model: Model | None = None

    def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if self._model is None:
            self._model = self._endpoint.model(self._name)
        return self._model.respond(request)

    async def close(self) -> None:
        if (close := getattr(self._model, "aclose", None)) is not None:
            await close()


def _is_local(name: str, known: Sequence[str]) -> bool:
    """Whether a server of local models has this one. Ollama's `qwen3` is its `qwen3:latest`."""
    return name in known or f"{name}:latest" in known or name.removesuffix(":latest") in known


def _is_listed(name: str, known: Sequence[str]) -> bool:
    """Whether a provider's list has this name, or another one of the same model."""
    if name in known or name.partition(":")[0] in known:  # OpenRouter's ways to the same model, such as `:nitro`
        return True
    base = f"{name.removesuffix('-latest')}-"  # lists have the day of a model's release, people often don't
    return any(one.startswith(base) and one[len(base) :].isdigit() for one in known)
