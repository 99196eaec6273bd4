"""The models this process can reach, by handle `provider/model`."""

from __future__ import annotations

import asyncio
import threading
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ModelNotFound
from perdure.core.features import feature_models
from perdure.core.models import NO_TRAITS, Model, ModelRequest, ModelTraits
from perdure.providers import choosing
from perdure.providers.build import Handles, build_model, is_listed, is_served, payload_of, takes_images
from perdure.providers.catalog import ModelFacts, facts_of
from perdure.providers.discovery import (
    LOOK_TIMEOUT_S,
    ModelListing,
    list_models,
    list_when_loaded,
    local_providers,
    may_probe,
    probe_local,
)
from perdure.providers.provider import ALIASES, PROVIDERS, Endpoint, ModelSource
from perdure.providers.traits import LearnedTraits

if TYPE_CHECKING:
    from perdure.providers.choosing import ServedModels
    from perdure.providers.retrying import Retrying

CACHED_MAX = 256


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
        listings: what the registries of this process know of those, and of the servers on this machine; each adds to
            it.
        own: the models that this process serves itself.
    """

    def __init__(
        self,
        models: Mapping[str, Model] | None = None,
        *,
        endpoints: Sequence[Endpoint] = (),
        listings: dict[str, ModelListing] | None = None,
        own: ServedModels | None = None,
    ) -> None:
        self._own = own
        self._models = dict(models or {})
        self.own_handles = frozenset(self._models) | feature_models().keys()
        """The handles of the models that the program itself gave, and of those that are there without a provider."""
        self._configured = {endpoint.provider: endpoint for endpoint in endpoints}
        # Those of servers on this machine that no variable names.
        self._default_endpoints = {
            endpoint.provider: endpoint for endpoint in local_providers() if endpoint.provider not in self._configured
        }
        self._stored: dict[str, Endpoint] = {}
        self._unreachable: set[str] = set()  # names of local servers that did not answer last time
        self._shared_listings = {} if listings is None else listings
        # Of those that clients registered, and the shared ones.
        self._listings: ChainMap[str, ModelListing] = ChainMap({}, self._shared_listings)
        self.learned = LearnedTraits()
        self.trials: dict[str, choosing.ToolTrial] = {}
        """What the models that this process has tried have shown last."""
        self._cache: dict[str, Retrying] = {}
        self._connections: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._fallback = choosing.fallback_choice()
        self.choice = self._fallback
        """The default: the model of agents that name none."""
        self.has_chosen = False
        """Whether it is decided: a setting names it, or the providers were asked for it."""
        self.deciding = asyncio.Lock()

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The providers of the environment, those that clients registered, and those that answer on this machine."""
        running = (endpoint for name, endpoint in self._default_endpoints.items() if name in self._listings)
        own = [self._own.endpoint] if self._own is not None and self._own.names() else []
        return [*self._configured.values(), *self._stored.values(), *own, *running]

    def put_stored(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the providers that clients registered. What is known about changed ones is forgotten."""
        stored = {endpoint.provider: endpoint for endpoint in endpoints}
        with self._lock:
            changed = {name for name in self._stored | stored if self._stored.get(name) != stored.get(name)}
            for key in [key for key in self._cache if key.partition("/")[0] in changed]:
                del self._cache[key]  # a run that uses it goes on with it
            for name in changed:
                self._listings.pop(name, None)
                self._unreachable.discard(name)
                self._connections.pop(name, None)
            self._stored = stored

    async def load_listing(self, name: str) -> ModelListing:
        """Ask one provider for its models. Never raises."""
        endpoint = self._endpoint(name)
        if endpoint is None:
            return ModelListing(problem=f"there is no provider {name!r}")
        listing = await list_models(endpoint)
        self._record(endpoint, listing)
        return listing

    def _endpoint(self, name: str) -> Endpoint | None:
        """The provider of this name, the first part of its handles."""
        if (own := self._own_of(name)) is not None:
            return own[0].endpoint
        return self._configured.get(name) or self._stored.get(name) or self._default_endpoints.get(name)

    @property
    def own_choice(self) -> choosing.DefaultModel | None:
        """The default of the models that this process serves itself."""
        return None if self._own is None else self._own.choice()

    def _own_of(self, handle: str) -> tuple[ServedModels, str] | None:
        """(The models that this process serves itself, which of them) by a handle; None: it is another's."""
        if self._own is None:
            return None
        name, _, model = handle.partition("/")
        return (self._own, model) if name == self._own.endpoint.provider else None

    def stored_as(self, handle: str) -> str | None:
        """The handle that a model of a registered provider would have by its type, in the words of the client; None:
        nobody registered its provider."""
        name, _, model = handle.partition("/")
        endpoint = self._stored.get(name)
        return None if endpoint is None else f"{endpoint.type}/{model}"

    def catalog_handle(self, handle: str) -> str:
        """The handle under which the catalog has this model."""
        name, _, model = handle.partition("/")
        endpoint = self._stored.get(name)
        return handle if endpoint is None else f"{endpoint.entry.name}/{model}"

    @property
    def listings(self) -> Mapping[str, ModelListing]:
        """Provider -> its listing, of those that were asked."""
        return dict(self._listings)

    def find(self, handle: str) -> Model | None:
        """Return the model with this handle; None: there is none. No network."""
        if (model := self._models.get(handle)) is not None:
            return model
        if handle in (found := feature_models()):  # loaded on demand: that takes time
            feature, built_in = found[handle]
            return self._models.setdefault(handle, feature.load(built_in.model)())
        if (match := self.provider_of(handle)) is None:
            return None
        endpoint, name = match
        with self._lock:
            key = f"{endpoint.provider}/{name}"
            if key not in self._cache:
                if len(self._cache) >= CACHED_MAX:  # names come from clients, so the cache is bounded
                    self._cache.pop(next(iter(self._cache)))
                source = ModelSource(
                    endpoint=endpoint,
                    name=name,
                    connections=self._connections,
                    traits=partial(self.traits, key),
                    learn=partial(self.learn, key),
                    look=partial(self.look_at, key),
                )
                self._cache[key] = build_model(source)
            return self._cache[key]

    async def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        """The body by which a request would be sent. That of a model without an API has the form of OpenAI's.

        Raises: ModelNotFound, ModelError.
        """
        if (chat := self.find(request.model)) is None:
            raise self.not_found(request.model)
        return await payload_of(chat, request)

    def takes_images(self, handle: str) -> bool:
        """Whether a model takes pictures, as far as is known; False: there is no such model."""
        return (model := self.find(handle)) is not None and takes_images(model)

    def handles(self) -> Sequence[str]:
        """The handles that are known, in order; see `Handles`."""
        listed = [
            f"{provider}/{name}"
            for provider, listing in self._listings.items()
            if self._own_of(provider) is None
            for name in listing.models
            if choosing.is_chat_model(name)
        ]
        own = [] if self._own is None else [f"{self._own.endpoint.provider}/{name}" for name in self._own.names()]
        return Handles(sorted({*self.own_handles, *listed, *own}), self.takes)

    def window_tokens(self, handle: str) -> int | None:
        """The window that its server runs a model with; else that of the catalog, or a cautious guess if it lacks the
        model; None for a program's own model and the built-in one, which need no catalog.

        Raises: InvalidInput: a catalog of the user's that can't be read.
        """
        if handle in self.own_handles:
            return None
        traits, facts = self._known(handle)
        return traits.window_tokens or facts.window_tokens

    def most_window_tokens(self, handle: str) -> int | None:
        """The window of a model by its server, or by a catalog that has it; None: unknown. Raises: InvalidInput."""
        if handle in self.own_handles:
            return None
        traits, facts = self._known(handle)
        return traits.window_tokens or (facts.window_tokens if facts.known else None)

    def traits(self, handle: str) -> ModelTraits:
        """What is known of a model: by its provider and the catalog at first, then by what `learn` was told.

        Raises: InvalidInput, as `window_tokens`.
        """
        if handle in self.own_handles:
            return self.learned.of(handle, NO_TRAITS, address="")
        return self._known(handle)[0]

    def _known(self, handle: str) -> tuple[ModelTraits, ModelFacts]:
        """(`traits` of a model that the program does not give itself, its facts in the catalog)."""
        match, facts = self.provider_of(handle), facts_of(self.catalog_handle(handle))
        if match is None:
            return self.learned.of(handle, NO_TRAITS, address=""), facts
        endpoint, name = match
        key = f"{endpoint.provider}/{name}"
        if (own := self._own_of(handle)) is not None:
            base = own[0].traits(name)
            known = self.learned.of(key, base, address=endpoint.address)
            return replace(known, window_tokens=base.window_tokens or known.window_tokens), facts
        base = ModelTraits(
            local=endpoint.local,
            plain=not endpoint.is_large(name),
            max_output_tokens=facts.max_output_tokens if endpoint.local else None,
            takes_tools=facts.tools,
        )
        return self.learned.of(key, base, address=endpoint.address), facts

    def learn(self, handle: str, **traits: Any) -> None:
        """Remember these traits of a model, by their names in `ModelTraits`."""
        match = None if handle in self.own_handles else self.provider_of(handle)
        if match is None:
            self.learned.add(handle, traits, address="")
        else:
            self.learned.add(f"{match[0].provider}/{match[1]}", traits, address=match[0].address)

    async def look_at(self, handle: str) -> None:
        """Learn what a server of one's own runs a model with. At most 1 s; never raises."""
        match = self.provider_of(handle)
        if handle in self._models or match is None or not match[0].local:
            return
        endpoint, name = match
        listing = self._listings.get(endpoint.provider, ModelListing())
        listed = listing.served.get(name, {})
        if traits := await choosing.detailed_traits(endpoint, name, listed):
            self.learn(handle, **traits)

    def takes(self, handle: str) -> bool:
        """Whether a new agent may have this model. The provider's listing decides; without one the answer is yes,
        except for a server that no variable names and that does not answer."""
        if handle in self.own_handles:
            return True
        if (match := self.provider_of(handle)) is None:
            return False
        endpoint, name = match
        if self._own_of(handle) is not None:
            return True
        if endpoint.provider in self._unreachable:  # a configured address counts, up or down
            return endpoint.provider not in self._default_endpoints
        listing = self._listings.get(endpoint.provider)
        if listing is None or listing.problem:
            return True
        if endpoint.local:
            return is_served(name, listing.models)
        return not listing.models or (is_listed(name, listing.models) and choosing.is_chat_model(name))

    def follow(self, handle: str) -> str:
        """The model of the next run of an agent that has this one and follows the default.

        A default of the settings counts at once. One that was found takes the place of the built-in program, and of a
        model whose provider is gone: a key that is added for something else, or a server that stops for a moment,
        changes no agent. The built-in program never takes the place of a language model.
        """
        choice = self.choice
        is_wanted = choice.is_setting or (
            choice.handle != self._fallback.handle and (handle == self._fallback.handle or self.find(handle) is None)
        )
        return choice.handle if is_wanted and self.find(choice.handle) is not None else handle

    async def look_for(self, handle: str) -> None:
        """List an unknown handle's local server again and look at the model, for at most 2 s; never raises."""
        match = self.provider_of(handle) if isinstance(handle, str) else None
        if handle in self._models or match is None or not match[0].local or self._own_of(handle) is not None:
            return
        endpoint, name = match
        listing = self._listings.get(endpoint.provider, ModelListing())
        if endpoint.provider in self._unreachable or not is_served(name, listing.models):
            if endpoint.provider in self._configured or endpoint.provider in self._stored:
                self._record(endpoint, await list_models(endpoint, timeout_s=LOOK_TIMEOUT_S))
            elif may_probe():
                answered = dict(await probe_local([endpoint]))
                self._record(
                    endpoint, answered.get(endpoint, ModelListing(problem=f"nobody answers on {endpoint.source}"))
                )
        if endpoint.provider not in self._unreachable:
            await self.look_at(handle)

    def not_found(self, handle: str) -> ModelNotFound:
        """Return the error for a missing model: which models there are, and what helps."""
        return ModelNotFound(handle, known=self.handles(), helps=self.what_helps(handle))

    def what_helps(self, handle: str) -> str:
        """Advice that makes this model available; empty for an unknown provider, unless a single one has that name."""
        if (own := self._own_of(handle)) is not None:
            return own[0].what_helps(own[1])
        if handle == self._fallback.handle:
            return self._fallback.reason
        prefix, _, name = handle.partition("/")
        if (stored := self._stored.get(prefix)) is not None:
            return stored.problem or f"{stored.address} has no model {name!r}"
        provider = PROVIDERS.get(ALIASES.get(prefix, prefix))
        if provider is None:
            named = [known for known in self.handles() if known.partition("/")[2] == handle]
            return f"Write {named[0]}" if len(named) == 1 else ""
        default = self._default_endpoints.get(provider.name)
        if default is not None and (provider.name not in self._listings or provider.name in self._unreachable):
            return (
                f"Nobody answers on {default.source} of this machine: start {provider.name}, or set {provider.urls[0]}"
            )
        endpoint = self._configured.get(provider.name, default)
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
        own = self._own_of(handle)
        endpoint = self._endpoint(prefix) if own is None else own[0].endpoint
        if endpoint is None or not slash or not name.strip() or endpoint.problem:
            return None
        if own is not None:
            return (endpoint, name) if name in own[0].names() else None
        if endpoint.base_url != endpoint.entry.default_url:
            return endpoint, name
        listed = self._listings.get(prefix, ModelListing()).models
        return (endpoint, name) if not listed or is_listed(name, listed) else None

    async def refresh(self) -> Mapping[str, ModelListing]:
        """Ask all providers for their models at once; at most 3 s. Never raises."""
        endpoints = self.endpoints
        answers = await asyncio.gather(*map(list_models, endpoints))
        for endpoint, listing in zip(endpoints, answers, strict=True):
            self._record(endpoint, listing)
        return self.listings

    def _record(self, endpoint: Endpoint, listing: ModelListing) -> None:
        """Remember the answer of an endpoint: whether it is reachable, its models, and the traits of these."""
        name = endpoint.provider
        if endpoint.local:
            (self._unreachable.add if listing.problem else self._unreachable.discard)(name)
        if listing.problem and name in self._default_endpoints and name not in self._listings:
            return
        # An older listing is better than a problem.
        if not listing.problem or not self._listings.get(name, ModelListing()).models:
            is_shared = name in self._configured or name in self._default_endpoints
            (self._shared_listings if is_shared else self._listings)[name] = listing
        if endpoint.local or endpoint.base_url != endpoint.entry.default_url:
            for model, traits in listing.served.items():
                self.learn(f"{name}/{model}", **traits)

    async def choose(
        self, setting: str, *, progress: Callable[[str], None] = lambda what: None
    ) -> choosing.DefaultModel:
        """The model of agents made without one, after asking every provider and, if none has a model, the servers on
        this machine; the registry then knows these.

        Args:
            setting: a handle that wins, or nothing.
            progress: gets the current step in a few words.
        """
        if (first := self.first_choice(setting)).is_setting:
            return first
        names = [endpoint.provider for endpoint in self.endpoints]
        if not self._listings.keys() >= set(names):
            progress(f"asking {', '.join(names)} for models…")
            await self.refresh()

        notes: list[str] = []
        trying = partial(self._try, progress=progress)
        for endpoint in self.endpoints:
            if self._own_of(endpoint.provider) is not None:
                continue  # they come after those that somebody has set up
            listing = await list_when_loaded(endpoint, self._listings.get(endpoint.provider, ModelListing()), progress)
            self._record(endpoint, listing)
            is_set = endpoint.provider not in self._default_endpoints
            if choice := await choosing.choose_from(endpoint, listing, trying, notes, is_set=is_set):
                return choice
        if first != self._fallback:
            return replace(first, notes=tuple(notes))
        for endpoint, listing in await self.probe_local():
            if choice := await choosing.choose_from(endpoint, listing, trying, notes, is_set=False):
                return choice
        return replace(self._fallback, notes=tuple(notes))

    @property
    def unused_servers(self) -> Sequence[Endpoint]:
        """The servers at addresses that somebody gave, as long as the built-in program answers in their place."""
        if not self.has_chosen or self.choice.handle != self._fallback.handle or self.choice.is_setting:
            return ()
        return [one for one in (*self._configured.values(), *self._stored.values()) if one.local and not one.problem]

    async def unused_server_has_model(self) -> bool:
        """Whether one of the `unused_servers` has a model by now; asks them. At most 1 s; never raises."""
        servers = self.unused_servers
        answers = await asyncio.gather(*(list_models(server, timeout_s=LOOK_TIMEOUT_S) for server in servers))
        for endpoint, listing in zip(servers, answers, strict=True):
            self._record(endpoint, listing)
        return any(choosing.is_chat_model(name) for listing in answers for name in listing.models)

    async def _try(self, endpoint: Endpoint, name: str, *, progress: Callable[[str], None]) -> choosing.ToolTrial:
        """Whether a model of a local server calls tools, as it is known or else as a request with a tool shows."""
        handle = f"{endpoint.provider}/{name}"
        await self.look_at(handle)
        if (calling := self.traits(handle).calling) is not None:
            return choosing.ToolTrial(
                "did not call the tool it was asked to call" if calling == "none" else "", calling
            )
        progress(f"trying a tool call on {handle}…")
        return await self.try_tools(handle)

    async def try_tools(self, handle: str) -> choosing.ToolTrial:
        """Ask a model for a tool call, whatever is known of it, and learn how it calls. Never raises a ModelError."""
        model = self.find(handle)
        if model is None:
            return choosing.ToolTrial(f"is not available: {self.what_helps(handle)}")
        if not (took_tools := self.traits(handle).takes_tools):
            self.learn(handle, takes_tools=True)
        trial = self.trials[handle] = await choosing.try_tools(model, handle)
        if trial.calling is not None:
            self.learn(handle, calling=trial.calling, by_trial=True)
        if trial.calling in (None, "none") and not took_tools:
            self.learn(handle, takes_tools=False)
        return trial

    def first_choice(self, setting: str) -> choosing.DefaultModel:
        """Return the model for agents made without one, before any provider was asked: that of a setting, which
        `choose` keeps; else one of this process, which a provider's replaces."""
        if setting:
            return choosing.DefaultModel(setting, "from PERDURE_MODEL", is_setting=True)
        return self.own_choice or self._fallback

    async def probe_local(self) -> Sequence[tuple[Endpoint, ModelListing]]:
        """The servers on this machine that answer and that no variable names; the registry remembers which answer."""
        names = self._configured.keys() | self._listings.keys()
        new = [(endpoint, listing) for endpoint, listing in await probe_local() if endpoint.provider not in names]
        for endpoint, listing in new:
            self._record(endpoint, listing)
        if may_probe():
            self._unreachable |= self._default_endpoints.keys() - self._listings.keys()
        return new

    async def close(self) -> None:
        """Close the connections of the providers' models; the program's own models stay open."""
        with self._lock:
            models, self._cache = list(self._cache.values()), {}
            connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(model.aclose() for model in models))
        await asyncio.gather(*(shared.aclose() for shared in connections))
