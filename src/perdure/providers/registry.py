"""The models this process can reach, by handle `provider/model`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

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
    probe_local,
)

if TYPE_CHECKING:
    from perdure.providers.openai_chat import Connections

__all__ = ["EXTRACTIVE", "Handles", "ModelRegistry"]

CACHED_MAX = 256


class Handles(list[str]):
    """The handles that are known. `in` also holds for those that a provider takes without having listed them."""

    def __init__(self, known: Sequence[str], takes: Callable[[str], bool]) -> None:
        super().__init__(known)
        self._takes = takes

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, str) and self._takes(handle)


class ModelRegistry:
    """`Models` over what the program brings along, what is built in, and the providers of the environment.

    Ollama and LM Studio can always be named: where they run by default is known, whether they do is seen at the call.
    `find` and `handles` ask no network and may be called from any thread; `refresh`, `choose` and `close` belong to the
    event loop.

    Args:
        models: handle -> model; they win over a provider's of the same handle.
        found: the providers of the environment, in the order in which one is chosen.
    """

    def __init__(self, models: Mapping[str, Model] | None = None, *, found: Sequence[Found] = ()) -> None:
        self._models = dict(models or {})
        self._given = frozenset(self._models)
        self._found = {one.provider: one for one in found}
        self._assumed = {one.provider: one for one in local_providers() if one.provider not in self._found}
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
        """Whether an agent may be given this model. Where a provider has told what it has, that decides; a server of
        local models gets new ones while this process runs, so there any name is taken. `find` asks for less: an agent
        that has a model keeps it when a list is short for a moment."""
        if handle == EXTRACTIVE or handle in self._models:
            return True
        if (there := self.provider_of(handle)) is None:
            return False
        found, name = there
        known = self._listings.get(found.provider, Listing()).models
        return found.local or not known or (_is_listed(name, known) and is_chat_model(name))

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
        # A list that was read once is better than none when the provider can't be asked now.
        for one, listing in zip(found, answers, strict=True):
            if not listing.problem or not self._listings.get(one.provider, Listing()).models:
                self._listings[one.provider] = listing
        return self.listings

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
        """The servers on this machine that answer and that no variable names; they are known afterwards."""
        there = [(one, listing) for one, listing in await probe_local() if one.provider not in self._found]
        for one, listing in there:
            self._assumed.pop(one.provider, None)
            self._found[one.provider] = one
            self._listings[one.provider] = listing
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


def _is_listed(name: str, known: Sequence[str]) -> bool:
    """Whether a provider's list has this name, or another one of the same model."""
    if name in known or name.partition(":")[0] in known:  # OpenRouter's ways to the same model, such as `:nitro`
        return True
    base = f"{name.removesuffix('-latest')}-"  # lists have the day of a model's release, people often don't
    return any(one.startswith(base) and one[len(base) :].isdigit() for one in known)
