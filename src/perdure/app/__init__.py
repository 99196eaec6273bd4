"""The composition root: it builds a running engine from the settings. Only this file imports every room.

What is imported here `as` itself is for library, server and CLI, which don't import adapters.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from perdure.app.endpoints import StoredProviders
from perdure.app.endpoints import StoredTraits as StoredTraits
from perdure.app.endpoints import endpoint_of as endpoint_of
from perdure.app.models import model_registry as model_registry
from perdure.app.models import own_models as own_models
from perdure.app.parts import KEY_FILE as KEY_FILE
from perdure.app.parts import cipher_of as cipher_of
from perdure.app.parts import configured_hooks as configured_hooks
from perdure.app.parts import engine_settings, token_counter_of, web_settings
from perdure.app.parts import make_key_file as make_key_file
from perdure.app.parts import web_search_engine as web_search_engine
from perdure.app.sandboxes import converter_of as converter_of
from perdure.app.sandboxes import reading_sandbox_of, requirements_folder
from perdure.app.sandboxes import sandbox_of as sandbox_of
from perdure.app.telemetry import RegistryNames, listeners_of
from perdure.app.telemetry import prices_of as prices_of
from perdure.core.errors import SecretKeyMissing, ToolError
from perdure.core.features import Point, find_features
from perdure.core.ids import DEFAULT_ORG, AgentId, Ids, OrgId, Uuids
from perdure.core.incoming.addresses import is_postgres
from perdure.core.messages import Image, ImageLink
from perdure.core.models import Model
from perdure.core.ports import Clock, Embedder, TokenCounter, Toolbox
from perdure.core.secrets import Cipher
from perdure.core.specs import ToolSpec
from perdure.core.tasks import undone_by
from perdure.core.telemetry import Telemetry
from perdure.core.tools.engine_specs import AGENT_TOOL_SPECS, BUILTIN_TOOL_SPECS, MEMORY_TOOL_SPECS
from perdure.core.tools.sandbox import Sandbox
from perdure.domain.environment import load_inputs
from perdure.domain.tools.units import current_tools, put_tools, seal_environments, unsealed_tools
from perdure.engine.context_engines import ContextEngines, EngineCalls, EngineFactory
from perdure.engine.hooks import Hooks
from perdure.engine.ports import Ports, SystemClock
from perdure.engine.records.leases import process_owner
from perdure.engine.run.runner import Runner
from perdure.engine.search.search import Search
from perdure.engine.workers.background import Background, Foreground
from perdure.engine.workers.embedding import EmbeddingWorker, WatchedStore
from perdure.providers.catalog import ModelFacts as ModelFacts
from perdure.providers.catalog import facts_of as facts_of
from perdure.providers.choosing import DefaultModel as DefaultModel
from perdure.providers.choosing import ServedModels
from perdure.providers.discovery import ModelListing
from perdure.providers.discovery import list_models as list_models
from perdure.providers.embeddings.choose import EmbedderChoice as EmbedderChoice
from perdure.providers.embeddings.choose import choose_embedder as choose_embedder
from perdure.providers.masking import environment_secrets as environment_secrets
from perdure.providers.masking import mask_text as mask_text
from perdure.providers.provider import ALIASES as ALIASES
from perdure.providers.provider import PROVIDERS as PROVIDERS
from perdure.providers.provider import Endpoint as Endpoint
from perdure.providers.registry import ModelRegistry as ModelRegistry
from perdure.providers.traits import describe_calling as describe_calling
from perdure.providers.traits import first_answer_s as first_answer_s
from perdure.scratch import remove_leftovers
from perdure.settings import Settings
from perdure.storage.database.postgres_look import open_for_reading as open_for_reading
from perdure.storage.database.sqlite_errors import store_error as store_error
from perdure.storage.database.sqlite_file import forget_mark as forget_mark
from perdure.storage.migrations import SCHEMA_VERSION as SCHEMA_VERSION
from perdure.storage.object_store import open_object_store as open_object_store
from perdure.storage.store import Store
from perdure.storage.stores.open import find_damage as find_damage
from perdure.storage.stores.open import find_refusal as find_refusal
from perdure.storage.stores.open import open_store as open_store
from perdure.storage.tables.table import NOT_DELETED as NOT_DELETED
from perdure.storage.tx import Tx
from perdure.telemetry.listeners import Listeners, reported_embedder
from perdure.toolbox.builtin.provider_guard import Reports
from perdure.toolbox.builtin.provider_guard import place_provider as place_provider
from perdure.toolbox.builtin.toolbox import Builtins
from perdure.toolbox.custom import CustomTools
from perdure.toolbox.functions import Functions as Functions
from perdure.toolbox.functions import Toolboxes
from perdure.toolbox.functions import tool as tool
from perdure.toolbox.hook_commands import function_hooks
from perdure.toolbox.hook_commands import hook as hook

# The library logs nothing on its own; a program that wants its warnings sets logging up.
logging.getLogger("perdure").addHandler(logging.NullHandler())

SEALED_PER_STEP = 100

READ_FILE: Point[[Tx, AgentId, str, int], tuple[str, str]] = Point("read_file")
"""Path and text of a file of an agent, for its code, cut behind so many characters. Raises: ToolError."""

S = TypeVar("S")


class Service(Protocol):
    """What a feature runs beside the runner, such as a worker. Its class is called with the `App`."""

    async def start(self) -> None:
        """Begin to work, after all services have been built."""

    async def close(self) -> None:
        """Begin nothing any more, and stop the work that goes on."""


class FeatureToolbox(Toolbox, Protocol):
    """A toolbox of a feature. It is closed after the runner, so that runs can end."""

    async def close(self) -> None:
        """Close connections and processes of the toolbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResources:
    """What the engines of all organisations of a process have in common.

    Args:
        store: the store itself, of which each engine has a view for its organisation.
        models: handle -> a model that the program brought.
        own: the models that this process serves itself; None: none.
        sandbox: runs the code of tools.
        reading: the sandbox that converts files.
        listings: provider -> the models that it has, of the providers in the environment and on this machine.
        foreground: notes which callers wait for an answer, so that work in the background gives way.
    """

    settings: Settings
    store: Store
    clock: Clock
    ids: Ids
    counter: TokenCounter
    cipher: Cipher
    embedding: EmbedderChoice
    hooks: Hooks
    engines: ContextEngines
    models: Mapping[str, Model]
    sandbox: Sandbox
    reading: Sandbox
    own: ServedModels | None
    listings: dict[str, ModelListing] = field(default_factory=dict)
    foreground: Foreground = field(default_factory=Foreground)


@dataclass(slots=True)
class App:
    """A running engine with all its parts. `close` stops them in order.

    Args:
        providers: it knows the providers that clients registered.
        traits: it keeps what is learned of models.
        services: class -> the service of a feature.
        embedder: it computes vectors; None: search is lexical only, and `embedding_reason` says why and what helps.
        worker: it embeds new texts in the background.
        custom: the tools that have a source.
        toolboxes: class -> the toolbox of a feature.
        telemetry: the listeners that learn what the engine does.
        shared: what the engines of all organisations of this process share; that of `DEFAULT_ORG` closes it.
    """

    settings: Settings
    store: Store
    ports: Ports
    runner: Runner
    models: ModelRegistry
    providers: StoredProviders
    traits: StoredTraits
    functions: Functions
    embedder: Embedder | None
    embedding_reason: str
    worker: EmbeddingWorker | None
    custom: CustomTools
    telemetry: Listeners
    shared: SharedResources
    org_id: OrgId = DEFAULT_ORG
    services: Mapping[type, Service] = field(default_factory=dict)
    toolboxes: Mapping[type, FeatureToolbox] = field(default_factory=dict)

    def service(self, kind: type[S]) -> S:
        """Return the service or toolbox of this class, which a feature runs. Raises: KeyError: there is none."""
        found = self.services.get(kind) or self.toolboxes[kind]
        assert isinstance(found, kind)
        return found

    @property
    def _own_services(self) -> Sequence[Service]:
        """The services that can be closed before the last run has ended, unlike those that work after each run."""
        return [one for one in self.services.values() if id(one) not in map(id, self.runner.after_runs.parts)]

    @property
    def choice(self) -> DefaultModel:
        """The default model, as it was decided last; before `decide` one that needs no provider."""
        return self.models.choice

    async def choose(self, *, progress: Callable[[str], None] = lambda text: None) -> DefaultModel:
        """Choose the default model anew by querying the providers of the environment and this machine; store `choice`.

        All providers are queried at once, for at most 3 s; a local server shows whether it calls tools as long as it
        goes on answering. `progress` gets a text about each wait. A provider's error is never raised.
        """
        self.models.choice = await self.models.choose(self.settings.model, progress=progress)
        self.models.has_chosen = True
        return self.choice

    async def decide(self, *, progress: Callable[[str], None] = lambda text: None) -> DefaultModel:
        """Return the default model. It is chosen once, by `choose`, and again when another server has come up."""
        async with self.models.deciding:
            if not self.models.has_chosen:
                return await self.choose(progress=progress)
            if await self.models.unused_server_has_model():
                logging.getLogger(__name__).info("a server answers that did not: %s", (await self.choose()).handle)
            return self.choice

    async def fetch_image(self, link: ImageLink) -> Image:
        """Fetch the picture at an address from a client. Raises: InvalidInput, AddressRefused, ToolError."""
        from perdure.toolbox.builtin.fetch_webpage import fetch_image
        from perdure.toolbox.web_guard import WebGuard

        guard = WebGuard(self.settings.web_allowed_hosts.split(","))
        kind, data = await fetch_image(link.url, guard, limit_bytes=self.settings.image_limit_bytes)
        return Image(kind, base64.b64encode(data).decode(), url=link.url, detail=link.detail)

    async def drain(self, within_s: float) -> None:
        """Begin nothing any more, leave waiting work to other processes, and give the current runs `within_s` seconds
        to end; see `Runner.drain`. `close` has to follow."""
        self.ports.drain.begin(within_s)
        for part in self._own_services:
            await part.close()
        await self.runner.drain(within_s)

    async def close(self) -> None:
        """Stop all parts in order."""
        await self.providers.close()
        for service in self._own_services:
            await service.close()
        await self.runner.close()
        for toolbox in self.toolboxes.values():
            await toolbox.close()
        if self.worker is not None:
            await self.worker.close()
        if self.org_id == DEFAULT_ORG:
            if self.embedder is not None:
                await self.embedder.close()
            await self.shared.sandbox.close()
            await self.shared.reading.close()
            if self.shared.own is not None:
                await self.shared.own.close()
        await self.traits.close()
        await self.models.close()
        await self.store.close()


async def start(
    settings: Settings,
    *,
    address: str | Path | None = None,
    models: Mapping[str, Model] | None = None,
    tools: Iterable[Callable[..., Any]] = (),
    store: Store | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    embedder: Embedder | None = None,
    sandbox: Sandbox | None = None,
    hooks: Iterable[Callable[[Any], Any]] = (),
    context_engines: Mapping[str, EngineFactory] | None = None,
) -> App:
    """Start an engine over the store at `address` (default: that of the settings), or over `store`.

    Args:
        embedder, sandbox: replacements of those that the settings choose; `close` closes them.
        hooks: functions decorated with `hook`, called after those of the settings and of packages.
        context_engines: name -> the function that builds a context engine from its options.
    Raises: StoreError; ExtraMissing: the embedder or psycopg; InvalidInput: an unusable tool, hook or setting.
    """
    embedding = choose_embedder(settings.embedding) if embedder is None else EmbedderChoice(embedder, "given")
    called = [*configured_hooks(settings, at_home=address is None and store is None), *function_hooks(hooks)]
    functions, counter, clock = Functions(tools), await token_counter_of(settings), clock or SystemClock()
    address = settings.store_address if address is None else address
    cipher, engines = cipher_of(settings, None if store is not None else address), ContextEngines(context_engines)
    if store is None:
        await asyncio.to_thread(remove_leftovers, *(() if is_postgres(address) else (Path(address).parent,)))
        store = await open_store(address, at=clock.now(), limits=settings, connections=settings.postgres_connections)
    async with undone_by(store.close):
        shared = SharedResources(
            settings=settings,
            store=store,
            clock=clock,
            ids=ids or Uuids(),
            counter=counter,
            cipher=cipher,
            embedding=embedding,
            hooks=Hooks(called),
            engines=engines,
            models=dict(models or {}),
            sandbox=sandbox or sandbox_of(settings, cache=requirements_folder(settings)),
            reading=reading_sandbox_of(settings),
            own=own_models(settings),
        )
        return await _start_parts(shared, store, functions)


async def start_organisation(app: App, org_id: OrgId) -> App:
    """Start an engine of another organisation in the process of `app`, which has to be closed after it. It has the
    models of the environment and those that the program brought, but none of the program's functions as tools.

    Raises: StoreError.
    """
    other = await _start_parts(app.shared, app.shared.store.for_organisation(org_id), Functions(()), org_id)
    if other.models.takes(app.choice.handle):
        other.models.choice, other.models.has_chosen = app.choice, app.models.has_chosen
    return other


async def _start_parts(shared: SharedResources, store: Store, functions: Functions, org_id: OrgId = DEFAULT_ORG) -> App:
    """Start the engine of one organisation over `store`, its view of the store; `functions` are the program's tools."""
    settings, clock, ids, embedding = shared.settings, shared.clock, shared.ids, shared.embedding
    registry = model_registry(shared.models, listings=shared.listings, own=shared.own)
    telemetry = listeners_of(settings, registry)
    worker: EmbeddingWorker | None = None
    if embedding.embedder is not None:  # its worker wakes with each write of a text
        embedder = reported_embedder(embedding.embedder, telemetry)
        worker = EmbeddingWorker(store, embedder, clock=clock, randomness=random.SystemRandom())
        store = WatchedStore(store, embedder.handle, worker.wake)
    await _bring_up_to_date(store, functions.specs(), shared.cipher, ids=ids, at=clock.now())
    custom = CustomTools(lambda *ids: store.read(load_inputs, *ids, cipher=shared.cipher), shared.sandbox)
    builtins = _builtin_tools(shared, store)
    toolbox = Toolboxes(function=functions, builtin=builtins, custom=custom)
    ports = _ports(shared, store, registry, toolbox, telemetry)
    providers = StoredProviders(store, shared.cipher, registry, ports.signals, model=settings.model)
    traits = StoredTraits(store, registry.learned)
    runner = Runner(ports)
    if worker is not None:
        ports.signals.on("embedding", worker.wake)
    app = App(
        settings,
        store,
        ports,
        runner,
        registry,
        providers,
        traits,
        functions,
        embedder=embedding.embedder,
        embedding_reason=embedding.reason,
        worker=worker,
        custom=custom,
        telemetry=telemetry,
        shared=shared,
        org_id=org_id,
    )
    kinds = [feature.load(name) for feature in find_features() for name in feature.services]
    app.services = {kind: kind(app) for kind in kinds}
    made = {kind: one.load(name)(app) for one in find_features() for kind, name in one.toolboxes.items()}
    app.toolboxes = {type(one): one for one in made.values()}
    toolbox.add(**made)
    for part in (traits, providers, runner, worker, *app.services.values()):
        if part is not None:
            await part.start()
    ports.signals.hear(store)
    return app


def _ports(
    shared: SharedResources, store: Store, registry: ModelRegistry, toolbox: Toolboxes, telemetry: Telemetry
) -> Ports:
    """Return all that the engine of one organisation needs of the outside; `toolbox` runs its tools."""
    settings, embedder, reason = shared.settings, shared.embedding.embedder, shared.embedding.reason
    if embedder is not None:
        embedder = reported_embedder(embedder, telemetry)
    return Ports(
        store=store,
        models=registry,
        toolbox=toolbox,
        search=Search(store, shared.clock, embedder=embedder, reason=reason, limits=settings),
        clock=shared.clock,
        ids=shared.ids,
        randomness=random.SystemRandom(),
        counter=shared.counter,
        hooks=shared.hooks,
        owner=process_owner(uuid.uuid4().hex[:12]),
        settings=engine_settings(settings),
        cipher=shared.cipher,
        send_report=Reports(settings.web_allowed_hosts.split(",")).send,
        background=Background(settings.background, shared.foreground),
        telemetry=telemetry,
        engine_calls=EngineCalls(shared.engines),
        contents=open_object_store(settings.files),
        price_of=RegistryNames(registry).price,
    )


def _builtin_tools(shared: SharedResources, store: Store) -> Builtins:
    """Return the tools for code and the web; code in the sandbox reads an agent's files through `store`."""

    async def load_file(agent_id: AgentId, name: str, most_chars: int) -> tuple[str, str]:
        """(path, text up to `most_chars`) of an agent's file, from the first feature with files. Raises: ToolError."""
        for found in await store.read(READ_FILE, agent_id, name, most_chars):
            return found
        raise ToolError(f"file {name[:80]!r} not found: you have no files")

    converter = converter_of(shared.settings, shared.reading)
    web = web_settings(shared.settings)
    return Builtins(converter=converter, web=web, sandbox=shared.sandbox, load_file=load_file, counter=shared.counter)


async def _bring_up_to_date(
    store: Store, functions: Sequence[ToolSpec], cipher: Cipher, *, ids: Ids, at: datetime
) -> None:
    """Store the specs of the built-in tools and of `functions`, but only if one is new or has changed. Encrypt the
    variables of tools that an older version stored in plain text; without a key they stay."""
    specs = [*MEMORY_TOOL_SPECS.values(), *BUILTIN_TOOL_SPECS.values(), *AGENT_TOOL_SPECS.values(), *functions]
    stored = await store.read(lambda tx: tx.tools.find_named([spec.name for spec in specs]))
    if current_tools(stored, specs):
        await store.write(put_tools, specs, ids=ids, at=at)
    with contextlib.suppress(SecretKeyMissing):
        while unsealed := await store.read(unsealed_tools, limit=SEALED_PER_STEP):
            await store.write(seal_environments, unsealed, cipher=cipher, at=at)
