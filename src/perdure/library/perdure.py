"""`AsyncPerdure`: a store and its agents, for programs with an event loop of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from perdure.app import App, start
from perdure.context.engines.port import ContextEngine
from perdure.core.agents import DEFAULT_AGENT_TYPE, AgentFilter
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.ids import AgentId, BlockId, Ids
from perdure.core.incoming.addresses import check_store_address, is_postgres
from perdure.core.models import Model
from perdure.core.ports import Clock, Embedder
from perdure.core.text.reprs import short_repr
from perdure.core.tools.engine_specs import ARCHIVAL_TOOLS, DEFAULT_TOOLS
from perdure.domain.agents.profile import PROFILE
from perdure.domain.agents.units import NewAgent
from perdure.domain.blocks.units import NewBlock
from perdure.domain.values import as_tags
from perdure.library.agent import AsyncAgent
from perdure.library.agents.agents import CompanionKind, SameName
from perdure.library.feature_parts import AsyncStoreFeatures
from perdure.library.memory.archives import AsyncArchives
from perdure.library.memory.blocks import AsyncBlocks
from perdure.library.memory.search import AsyncSearch, RecallOptions
from perdure.library.parts.checks import Page
from perdure.library.store import StoreParts
from perdure.library.tools.secrets import AsyncSecrets
from perdure.library.tools.tools import AsyncTools
from perdure.search.ranking.hits import Recalled
from perdure.settings import Settings
from perdure.storage.store import Store


class AgentOptions(TypedDict, total=False):
    """The options of `create_agent`."""

    model: str | None
    persona: str | None
    human: str | None
    blocks: Mapping[str, str] | Sequence[NewBlock]
    block_ids: Sequence[BlockId]
    tools: Sequence[str | Callable[..., Any]] | None
    archival: bool
    system: str | None
    description: str | None
    timezone: str | None
    tags: Sequence[str]
    metadata: Mapping[str, Any] | None
    settings: Mapping[str, Any] | None
    profile: str | None
    agent_type: str
    sleeptime: bool


class AsyncPerdure(StoreParts, AsyncStoreFeatures):
    """An open store. Make it with `await AsyncPerdure.open(...)`, close it with `close` or `async with`."""

    __repr__ = short_repr("path")

    def __init__(self, app: App, *, path: Path | None = None) -> None:
        if not isinstance(app, App):
            raise TypeError(f"AsyncPerdure({app!r:.80}): open a store by `await AsyncPerdure.open(...)`")
        super().__init__(app)
        self._first_functions = [spec.name for spec in app.functions.specs()]
        self._path = path

    @classmethod
    async def open(
        cls,
        address: str | Path | None = None,
        *,
        models: Mapping[str, Model] | None = None,
        tools: Iterable[Callable[..., Any]] = (),
        settings: Settings | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        embedder: Embedder | None = None,
        hooks: Iterable[Callable[[Any], Any]] = (),
        context_engines: Mapping[str, Callable[..., ContextEngine]] | None = None,
    ) -> AsyncPerdure:
        """The store at `address`: a file, made if need be, or `postgresql://...`; by default that of the settings.

        Args:
            models: handle -> model, besides those that are built in.
            tools: Python functions, marked by `tool` or not, that agents may be given by name.
            settings: by default those of the environment (`PERDURE_...`).
            store, clock, ids: stand-ins, such as those of `perdure.testing`.
            embedder: what makes vectors, in place of what the setting `embedding` chooses; it is closed with the store.
            hooks: functions marked by `hook`, called besides those that this machine has set.
            context_engines: name -> class of a context engine, besides the shipped ones and those of packages.
        Raises: StoreError, InvalidInput.
        """
        if store is None and str(address) == ":memory:":
            raise InvalidInput(
                "there is no store at ':memory:': several threads read it, so it needs a file. Give one in"
                " tempfile.TemporaryDirectory(), or store=perdure.testing.InlineStore()"
            )
        if isinstance(address, str):
            check_store_address("the address of the store", address)
        if not isinstance(settings, Settings | None):
            raise InvalidInput(f"settings is {settings!r:.80}: give a perdure.Settings")
        settings = settings or Settings.from_environment()
        app = await start(
            settings,
            address=address,
            models=models,
            tools=tools,
            store=store,
            clock=clock,
            ids=ids,
            embedder=embedder,
            hooks=hooks,
            context_engines=context_engines,
        )
        place = settings.store_address if address is None else address
        return cls(app, path=None if store is not None or is_postgres(place) else Path(place))

    @property
    def app(self) -> App:
        """The engine beneath: store, runner, ports. For the server and the CLI; it may change between versions."""
        return self._app

    async def close(self) -> None:
        """Stop; runs that have not ended go on when the store is opened again."""
        await self._app.close()

    async def __aenter__(self) -> AsyncPerdure:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def path(self) -> Path | None:
        """The store's file; None when it is no file of ours: PostgreSQL, or a stand-in."""
        return self._path

    @property
    def blocks(self) -> AsyncBlocks:
        """All blocks of the store."""
        return AsyncBlocks(self._app)

    @property
    def archives(self) -> AsyncArchives:
        """All archives of the store."""
        return AsyncArchives(self._app)

    @property
    def secrets(self) -> AsyncSecrets:
        """The secrets of the store, which the tools of every agent may name."""
        return AsyncSecrets(self._app)

    @property
    def tools(self) -> AsyncTools:
        """All tools of the store."""
        return AsyncTools(self._app)

    @property
    def models(self) -> Sequence[str]:
        """The handles of the models that can be used here."""
        return self._app.models.handles()

    async def create_agent(
        self,
        name: str | None = None,
        *,
        model: str | None = None,
        persona: str | None = None,
        human: str | None = None,
        blocks: Mapping[str, str] | Sequence[NewBlock] = (),
        block_ids: Sequence[BlockId] = (),
        tools: Sequence[str | Callable[..., Any]] | None = None,
        archival: bool = True,
        system: str | None = None,
        description: str | None = None,
        timezone: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        profile: str | None = None,
        agent_type: str = DEFAULT_AGENT_TYPE,
        sleeptime: bool = False,
    ) -> AsyncAgent:
        """A new agent with blocks `persona` and `human`, and those in `blocks` (label -> value, or `NewBlock`s).

        Args:
            name: by default "agent", with a number behind it if there is one already.
            model: a handle such as "perdure/extractive"; by default it follows the default model, for which the
                providers of the environment and the servers on this machine are asked once.
            block_ids: existing blocks to share.
            tools: names of tools, and Python functions, which run in this process as those of `open` do; by default
                the memory tools of the agent type, the archival ones (unless `archival` is off) and every function this
                store was opened with.
            system: a base prompt in place of Perdure's; `{CORE_MEMORY}` in it is where memory goes.
            timezone: a name such as "Europe/Rome", which decides where days begin; by default the setting's.
            profile: "small" or "full"; by default it follows from the model.
            sleeptime: whether it gets a companion, which tidies its memory while nobody waits.
        Raises: AlreadyExists: an agent has this name; InvalidInput, NameInvalid, ModelNotFound, NotFound,
            BlockLimitExceeded, StoreError.
        """
        agents = self.all_agents
        handle = (await self._app.decide()).handle if model is None else model
        await agents.check_model(handle)
        if isinstance(blocks, Mapping):
            blocks = [NewBlock(label=label, value=value) for label, value in blocks.items()]
        new_blocks = tuple(blocks)
        labels = {block.label for block in new_blocks} | {(await self.blocks.get(id_)).label for id_ in block_ids}
        for label, value in (("persona", persona), ("human", human)):
            if label in labels and value is not None:
                raise InvalidInput(f"{label} is given twice: as an argument, and as a block with this label")
            if label not in labels:
                new_blocks = (*new_blocks, NewBlock(label=label, value=value or ""))
        if tools is None:
            archival_tools = ARCHIVAL_TOOLS if archival else ()
            tools = [*DEFAULT_TOOLS.get(agent_type, ()), *archival_tools, *self._first_functions]
        new = NewAgent(
            name="agent" if name is None else name,
            model=handle,
            follows_default=model is None,
            agent_type=agent_type,
            system=system,
            description=description,
            timezone=timezone,
            blocks=new_blocks,
            block_ids=tuple(block_ids),
            tools=await self.tools.load(tools),
            tags=as_tags(tags),
            metadata=metadata or {},
            settings={**(settings or {}), **({} if profile is None else {PROFILE: profile})},
        )
        same_name: SameName = "number" if name is None else "refuse"
        companion: CompanionKind | None = "sleeptime" if sleeptime else None
        return AsyncAgent(self._app, await agents.add(new, same_name=same_name, companion=companion))

    async def get_or_create_agent(self, name: str, **options: Unpack[AgentOptions]) -> AsyncAgent:
        """The agent of this name; a new one if there is none.

        Args:
            options: with the meaning as `create_agent` has them, for a new agent. An agent that is there stays as it
                is; the functions in `tools` are loaded into this process.
        Raises: as `create_agent`.
        """
        try:
            agent = await self.agent(name)
        except NotFound:
            try:
                return await self.create_agent(name, **options)
            except AlreadyExists:  # another process was quicker
                agent = await self.agent(name)
        await self.tools.load(options.get("tools") or ())
        return agent

    async def agent(self, name_or_id: str) -> AsyncAgent:
        """The agent of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
        return AsyncAgent(self._app, await self.all_agents.resolve(name_or_id))

    async def last_agent(self) -> AsyncAgent | None:
        """The agent that was used last; None when there is none yet."""
        agent = await self.all_agents.find_last_used()
        return None if agent is None else AsyncAgent(self._app, agent)

    async def agents(self, *, limit: int = 50, after: AgentId | None = None) -> list[AsyncAgent]:
        """Agents, newest first; `after` is the last one of the page before.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no agent `after`.
        """
        agents = await self.all_agents.page(AgentFilter(), Page(limit, ascending=False, after=after))
        return [AsyncAgent(self._app, agent) for agent in agents]

    async def recall(
        self,
        query: str,
        *,
        agent: str | None = None,
        archives: Sequence[str] | None = None,
        timezone: str = "UTC",
        **options: Unpack[RecallOptions],
    ) -> Recalled:
        """What agent and archives hold about a query, as one text for any model, with its sources.

        Args:
            agent: the name or id of one; its blocks, messages and archives are searched. None: only `archives` are.
            archives: names or ids; by default all that the agent has, its folders' included.
            timezone: the time zone of dates in the text, if there is no agent.
            options: `budget_tokens`: the most tokens of the text, by default 2,000. `blocks`, `messages`: whether the
                text may contain them, by default both. `floor`: leave out passages and messages with a score below
                this, 0 to 1. `explain`: whether each source says `why` it was found.
        Raises: InvalidInput: an empty query, a budget below 1 or above 200,000, a floor outside 0 to 1, neither an
            agent nor archives; NotFound.
        """
        if archives is not None and not isinstance(archives, list | tuple | set | frozenset):
            raise InvalidInput(f"archives is {archives!r:.80}: give a list of names or ids")
        return await AsyncSearch(self._app, None if agent is None else (await self.agent(agent)).id).recall(
            query,
            archives=None if archives is None else [(await self.archives.get(archive)).id for archive in archives],
            timezone=timezone,
            **options,
        )

    async def delete_agent(self, agent_id: AgentId) -> None:
        """Delete an agent with history and companion. Blocks and archives, which may be shared, stay.

        Raises: NotFound.
        """
        await self.agent_of(agent_id).delete()
