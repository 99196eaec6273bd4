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
from perdure.providers.choosing import Choice, ToolProbe, choose_model, choose_unasked, probe_tools
from perdure.providers.discovery import (
    ALIASES,
    PROVIDERS,
    Found,
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
    """The handles that are known. `in` also holds for those that a provider takes without having listed them."""

    def __init__(self, known: Sequence[str], takes: Callable[[str], bool]) -> None:
        super().__init__(known)
        self._takes = takes

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, str) and self._takes(handle)


class ModelMissing(ModelNotFound):
    """No such model here; `helps` is what to do about it, a sentence or nothing."""

    def __init__(self, handle: str, *, known: Sequence[str], helps: str) -> None:
        super().__init__(handle, known=known)
        self.helps = helps
        if helps:
            self.args = (f"{self}. {helps}",)


class ModelRegistry:
    """`Models` over what the program brings along, what is built in, and the providers of the environment.

    Ollama and LM Studio can be named without a variable: where they run by default is known. `find` gives a model of
    theirs whether they run or not, so that an agent that has one keeps it; `takes` says whether an agent may be given
    one, which after `probe_local` or `look_for` depends on what they answered.

    `find`, `takes` and `handles` ask no network and may be called from any thread; what is `async` belongs to the event
    loop.

    Args:
        models: handle -> model; they win over a provider's of the same handle.
        found: the providers of the environment, in the order in which one is chosen.
    """

    def __init__(self, models: Mapping[str, Model] | None = None, *, found: Sequence[Found] = ()) -> None:
        self._models = dict(models or {})
        self._given = frozenset(self._models)
        self._found = {one.provider: one for one in found}
        self._assumed = {one.provider: one for one in local_providers() if one.provider not in self._found}
        self._unnamed = frozenset(self._assumed)  # no variable names them, also when they answer
        self._silent: set[str] = set()  # servers of local models that did not answer when they were asked last
        self._listings: dict[str, Listing] = {}
        self._made: dict[str, _Reached] = {}
        self._endpoints: dict[str, _Endpoint] = {}
        self._lock = threading.Lock()

    @property
    def found(self) -> Sequence[Found]:
        """The providers that were found: in the environment, or answering on this machine."""
        return list(self._found.values())

    @property
    def listings(self) -> Mapping[str, Listing]:
        """Provider -> what it said it has, of those that were asked."""
        return dict(self._listings)

    def find(self, handle: str) -> Model | None:
        if (model := self._models.get(handle)) is not None:
            return model
        if handle == EXTRACTIVE:
            # Its patterns take a quarter of the time of `import perdure`: they are loaded when they are needed.
            from perdure.providers.extractive import ExtractiveModel

            return self._models.setdefault(handle, ExtractiveModel())
        if (there := self.provider_of(handle)) is None:
            return None
        found, name = there
        with self._lock:
            key = f"{found.provider}/{name}"
            if key not in self._made:
                if len(self._made) >= CACHED_MAX:  # names come from outside; a dropped one is closed when it is unused
                    self._made.pop(next(iter(self._made)))
                endpoint = self._endpoints.setdefault(found.provider, _Endpoint(found))
                self._made[key] = _Reached(endpoint, name)
            return self._made[key]

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
        return None if handle == EXTRACTIVE or handle in self._given else facts_of(handle).window_tokens

    def takes(self, handle: str) -> bool:
        """Whether an agent may be given this model, as far as is known: what a provider said it has decides. One that
        did not say is believed to have it, but for a server that no variable names and that did not answer."""
        if handle == EXTRACTIVE or handle in self._models:
            return True
        if (there := self.provider_of(handle)) is None:
            return False
        found, name = there
        if found.provider in self._silent:  # who gave its address wants it, up or down
            return found.provider not in self._unnamed
        listing = self._listings.get(found.provider)
        if listing is None or listing.problem:
            return True
        if found.local:
            return _is_local(name, listing.models)
        return not listing.models or (_is_listed(name, listing.models) and is_chat_model(name))

    async def look_for(self, handle: str) -> None:
        """Ask the server of local models that this handle names, unless it is known to have the model: it gets new ones
        while this process runs, and may have been started since. At most 1 s; never raises."""
        there = self.provider_of(handle) if isinstance(handle, str) else None
        if handle in self._models or there is None or not there[0].local:
            return
        found, name = there
        listing = self._listings.get(found.provider, Listing())
        if found.provider not in self._silent and _is_local(name, listing.models):
            return
        if found.provider not in self._unnamed:
            self._heard(found, await list_models(found, timeout_s=LOOK_FOR_TIMEOUT_S))
        elif may_probe():
            answered = dict(await probe_local([found]))
            self._heard(found, answered.get(found, Listing(problem=f"nobody answers on {found.source}")))

    def not_found(self, handle: str) -> ModelNotFound:
        """The error for a model that is not here: which ones there are, and what helps."""
        return ModelMissing(handle, known=self.handles(), helps=self.what_helps(handle))

    def what_helps(self, handle: str) -> str:
        """What to do so that this model can be asked; empty for one of a provider that nobody knows."""
        prefix, _, name = handle.partition("/")
        provider = PROVIDERS.get(ALIASES.get(prefix, prefix))
        if provider is None:
            return ""
        found = self._found.get(provider.name)
        if provider.name in self._unnamed and (found is None or provider.name in self._silent):
            port = (found or self._assumed[provider.name]).source
            return f"Nobody answers on {port} of this machine: start {provider.name}, or set {provider.urls[0]}"
        if found is None:
            return f"Set {' or '.join(provider.keys or provider.urls)}"
        if found.problem:
            return found.problem
        get_it = f": `ollama pull {name}` gets it" if provider.name == "ollama" else ""
        return f"{found.address} has no model {name!r}{get_it}"

    def provider_of(self, handle: str) -> tuple[Found, str] | None:
        """The provider that takes this handle, and the model's name there; None if there is none.

        The list of a provider at its own address decides over names. A server of somebody's own may have more than it
        lists, and gets new ones while this process runs: there any name is taken.
        """
        prefix, slash, name = handle.partition("/")
        prefix = ALIASES.get(prefix, prefix)
        found = self._found.get(prefix) or self._assumed.get(prefix)
        if found is None or not slash or not name.strip() or found.problem:
            return None
        known = self._listings.get(prefix, Listing()).models
        decides = bool(known) and found.base_url == PROVIDERS[prefix].default_url
        return (found, name) if not decides or _is_listed(name, known) else None

    async def refresh(self) -> Mapping[str, Listing]:
        """Ask every provider that was found for its models, all at once; at most 3 s. Never raises."""
        found = self.found
        answers = await asyncio.gather(*map(list_models, found))
        for one, listing in zip(found, answers, strict=True):
            self._heard(one, listing)
        return self.listings

    def _heard(self, found: Found, listing: Listing) -> None:
        """Keep what a provider answered to the question for its models."""
        name = found.provider
        if found.local:
            (self._silent.add if listing.problem else self._silent.discard)(name)
        if listing.problem and name in self._assumed:
            return
        if self._assumed.pop(name, None) is not None:
            self._found[name] = found
        # A list that was read once is better than none when the provider can't be asked now.
        if not listing.problem or not self._listings.get(name, Listing()).models:
            self._listings[name] = listing

    def choose_unasked(self, setting: str) -> Choice:
        """The model of agents made without one, as far as it is known without a network."""
        return choose_unasked(setting, self.found)

    async def choose(self, setting: str, *, progress: Callable[[str], None] = lambda what: None) -> Choice:
        """The model of agents made without one, after every provider was asked and, if there is none with a model, the
        servers on this machine; these are known afterwards.

        Args:
            setting: a handle that wins, or nothing.
            progress: is told what is waited for, in a few words.
        """
        if setting:
            return choose_unasked(setting, ())
        if self._found.keys() - self._listings.keys():
            progress(f"asking {', '.join(self._found)} for models…")
            await self.refresh()

        async def tried(found: Found, name: str) -> ToolProbe:
            progress(f"trying a tool call on {found.provider}/{name}…")
            return await probe_tools(found, name)

        return await choose_model(setting, self.found, self._listings, probe_local=self.probe_local, probe_tools=tried)

    async def probe_local(self) -> Sequence[tuple[Found, Listing]]:
        """The servers on this machine that answer and that no variable names; they are known afterwards, and that the
        others don't answer."""
        there = [(one, listing) for one, listing in await probe_local() if one.provider not in self._found]
        for one, listing in there:
            self._heard(one, listing)
        if may_probe():
            self._silent |= self._assumed.keys()
        return there

    async def close(self) -> None:
        """Close the connections of every model that was made here; those that the program brought along stay open."""
        with self._lock:
            made, self._made = list(self._made.values()), {}
            endpoints, self._endpoints = list(self._endpoints.values()), {}
        await asyncio.gather(*(model.close() for model in made))
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))


class _Endpoint:
    """A provider and the connections to it, which its models share."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._connections: Connections | None = None

    def model(self, name: str) -> Model:
        """The adapter of this model, which asks again what failed for a moment. Raises: InvalidInput."""
        from perdure.providers.retrying import Retrying

        found = self.found
        key = found.api_key if found.has_key else None
        own = found.base_url != PROVIDERS[found.provider].default_url
        if found.kind == "direct":
            from perdure.providers.pydantic_ai import DirectModel

            base_url = found.base_url if own else None
            return Retrying(DirectModel(provider=found.provider, model=name, api_key=key, base_url=base_url))
        from perdure.providers.openai_chat import Connections, OpenAIChat

        self._connections = self._connections or Connections()
        chat = OpenAIChat(
            model=name,
            base_url=found.base_url,
            api_key=key,
            provider=found.provider,
            connections=self._connections,
            reasoning_back=PROVIDERS[found.provider].reasoning_back,
        )
        return Retrying(chat)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.aclose()


class _Reached:
    """A model of a provider. Its adapter is made at the first call: its import takes longer than a transaction may."""

    def __init__(self, endpoint: _Endpoint, name: str) -> None:
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
