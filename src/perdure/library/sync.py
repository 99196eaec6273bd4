"""`Perdure` and `Agent`: the library with plain calls. Every method is the asynchronous one's, run in the store's own
loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from perdure.context.request.explain import Explanation
from perdure.context.window.overview import ContextOverview
from perdure.core.agents import DEFAULT_AGENT_TYPE
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, ArchiveId, BlockId, ConversationId, RunId, StepId
from perdure.core.messages import Message, Role
from perdure.core.models import Exchange, Model, ModelRequest
from perdure.core.ports import Clock, Embedder, Ids, Store
from perdure.core.runs import IfBusy, Run
from perdure.domain.agents.units import AgentChanges, NewBlock
from perdure.domain.conversations.importing import ImportedMessage
from perdure.engine.run.accept import Accepted
from perdure.library.agent import AsyncAgent
from perdure.library.client_tools import ClientTool
from perdure.library.history import ImportResult
from perdure.library.perdure import AsyncPerdure
from perdure.library.portal import Portal
from perdure.library.recall import BUDGET_TOKENS
from perdure.library.reply import Reply
from perdure.library.steps import StepInfo
from perdure.library.sync_approval import Approval
from perdure.library.sync_archives import AgentArchives, Archival, Archives
from perdure.library.sync_blocks import AgentBlocks, Blocks
from perdure.library.sync_conversations import Conversations
from perdure.library.sync_folders import AgentFiles, Folders
from perdure.library.sync_mcp import Mcp
from perdure.library.sync_secrets import Secrets
from perdure.library.sync_tools import AgentTools, Tools
from perdure.library.tool_rules import AgentRules
from perdure.search.hits import Hits, MessageHit
from perdure.search.recalled import Recalled
from perdure.settings import Settings

__all__ = ["Agent", "AgentBlocks", "Blocks", "Perdure"]


class Perdure:
    """An open store and its agents.

    ```python
    with Perdure("agents.db") as perdure:
        agent = perdure.create_agent("Ada's helper")
        print(agent.send("My name is Ada.").text)
    ```

    Arguments and errors: see `AsyncPerdure.open`.
    """

    def __init__(
        self,
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
    ) -> None:
        self._portal = Portal()
        try:
            self._inner = self._portal.run(
                AsyncPerdure.open(
                    address,
                    models=models,
                    tools=tools,
                    settings=settings,
                    store=store,
                    clock=clock,
                    ids=ids,
                    embedder=embedder,
                    hooks=hooks,
                )
            )
        except BaseException:
            self._portal.close()
            raise
        self.blocks = Blocks(self._portal, self._inner.blocks)
        self.archives = Archives(self._portal, self._inner.archives)
        self.folders = Folders(self._portal, self._inner.folders)
        self.secrets = Secrets(self._portal, self._inner.secrets)
        self.mcp = Mcp(self._portal, self._inner.mcp)
        self.tools = Tools(self._portal, self._inner.tools)

    def close(self) -> None:
        """Stop; runs that have not ended go on when the store is opened again. Closing twice is no error."""
        if self._portal.is_open:
            self._portal.run(self._inner.close())
            self._portal.close()

    def __enter__(self) -> Perdure:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def models(self) -> Sequence[str]:
        return self._inner.models

    @property
    def path(self) -> Path | None:
        """The store's file; None when it is no file of ours: PostgreSQL, or a stand-in."""
        return self._inner.path

    def create_agent(
        self,
        name: str = "agent",
        *,
        model: str | None = None,
        persona: str | None = None,
        human: str | None = None,
        blocks: Mapping[str, str] | Sequence[NewBlock] = (),
        block_ids: Sequence[BlockId] = (),
        tools: Sequence[str] | None = None,
        archival: bool = True,
        system: str | None = None,
        description: str | None = None,
        timezone: str = "UTC",
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        agent_type: str = DEFAULT_AGENT_TYPE,
    ) -> Agent:
        """A new agent; see `AsyncPerdure.create_agent`."""
        made = self._inner.create_agent(
            name,
            model=model,
            persona=persona,
            human=human,
            blocks=blocks,
            block_ids=block_ids,
            tools=tools,
            archival=archival,
            system=system,
            description=description,
            timezone=timezone,
            tags=tags,
            metadata=metadata,
            settings=settings,
            agent_type=agent_type,
        )
        return Agent(self._portal, self._portal.run(made))

    def agent(self, name_or_id: str) -> Agent:
        """The agent of this id or name. Raises: NotFound, naming what there is."""
        return Agent(self._portal, self._portal.run(self._inner.agent(name_or_id)))

    def last_agent(self) -> Agent | None:
        """The agent that was used last; None when there is none yet."""
        agent = self._portal.run(self._inner.last_agent())
        return None if agent is None else Agent(self._portal, agent)

    def agents(self, *, limit: int = 50, after: AgentId | None = None) -> list[Agent]:
        """Agents, newest first."""
        return [Agent(self._portal, agent) for agent in self._portal.run(self._inner.agents(limit=limit, after=after))]

    def recall(
        self,
        query: str,
        *,
        budget_tokens: int = BUDGET_TOKENS,
        agent: str | None = None,
        archives: Sequence[str] | None = None,
        blocks: bool = True,
        messages: bool = True,
        floor: float = 0.0,
        explain: bool = False,
        timezone: str = "UTC",
    ) -> Recalled:
        """The best of what is remembered for a query, as one text within a budget, with its sources."""
        return self._portal.run(
            self._inner.recall(
                query,
                budget_tokens=budget_tokens,
                agent=agent,
                archives=archives,
                blocks=blocks,
                messages=messages,
                floor=floor,
                explain=explain,
                timezone=timezone,
            )
        )

    def delete_agent(self, agent_id: AgentId) -> None:
        """Remove an agent with its whole history. Raises: NotFound."""
        self._portal.run(self._inner.delete_agent(agent_id))


class Agent(Conversations, Archival, Approval):
    """One agent; see `AsyncAgent` for arguments and errors."""

    _inner: AsyncAgent

    def __init__(self, portal: Portal, inner: AsyncAgent) -> None:
        self._portal, self._inner = portal, inner
        self.info, self.id, self.name = inner.info, inner.id, inner.name
        self.blocks = AgentBlocks(portal, inner.blocks)
        self.archives = AgentArchives(portal, inner.archives)
        self.files = AgentFiles(portal, inner.files)
        self.secrets = Secrets(portal, inner.secrets)
        self.tools = AgentTools(portal, inner.tools)
        self.rules = AgentRules(portal, inner.rules)

    def send(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        client_tools: Sequence[ClientTool] = (),
    ) -> Reply:
        """Say something and wait for the whole reply."""
        return self._portal.run(
            self._inner.send(
                text,
                conversation=conversation,
                idempotency_key=idempotency_key,
                if_busy=if_busy,
                max_steps=max_steps,
                client_tools=client_tools,
            )
        )

    def stream(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        background: bool = False,
        client_tools: Sequence[ClientTool] = (),
    ) -> Iterator[StoredEvent | Delta]:
        """Say something and follow what happens."""
        return self._portal.iterate(
            self._inner.stream(
                text,
                conversation=conversation,
                idempotency_key=idempotency_key,
                if_busy=if_busy,
                max_steps=max_steps,
                background=background,
                client_tools=client_tools,
            )
        )

    def submit(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        background: bool = True,
        client_tools: Sequence[ClientTool] = (),
    ) -> Accepted:
        """Say something without waiting for the reply."""
        return self._portal.run(
            self._inner.submit(
                text,
                conversation=conversation,
                idempotency_key=idempotency_key,
                if_busy=if_busy,
                max_steps=max_steps,
                background=background,
                client_tools=client_tools,
            )
        )

    def follow(self, run_id: RunId, *, after: int = 0) -> Iterator[StoredEvent | Delta]:
        """The events of a run of this agent after number `after`, until it has ended."""
        return self._portal.iterate(self._inner.follow(run_id, after=after))

    def cancel(self, run_id: RunId) -> Run:
        """Ask a run of this agent to stop."""
        return self._portal.run(self._inner.cancel(run_id))

    def run(self, run_id: RunId) -> Run:
        """A run of this agent."""
        return self._portal.run(self._inner.run(run_id))

    def exchange(self, step_id: StepId) -> Exchange | None:
        """What went over the wire at a step of this agent, keys masked; None for a model that has no wire."""
        return self._portal.run(self._inner.exchange(step_id))

    def messages(
        self,
        *,
        conversation: ConversationId | None = None,
        limit: int = 100,
        before_seq: int | None = None,
        after_seq: int | None = None,
        newest_first: bool = False,
        reset: bool = False,
    ) -> Sequence[Message]:
        """A page of the history."""
        return self._portal.run(
            self._inner.messages(
                conversation=conversation,
                limit=limit,
                before_seq=before_seq,
                after_seq=after_seq,
                newest_first=newest_first,
                reset=reset,
            )
        )

    def message_count(self) -> int:
        """How many messages the history holds."""
        return self._portal.run(self._inner.message_count())

    def import_messages(
        self,
        messages: Iterable[ImportedMessage | Mapping[str, Any] | Sequence[Any]],
        *,
        conversation: ConversationId | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportResult:
        """Put history that took place elsewhere at the end of a conversation."""
        return self._portal.run(self._inner.import_messages(messages, conversation=conversation, progress=progress))

    def search(
        self,
        text: str,
        *,
        roles: Sequence[Role] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
    ) -> Hits[MessageHit]:
        """The messages of the whole history that best match, best first."""
        return self._portal.run(
            self._inner.search(text, roles=roles, since=since, until=until, limit=limit, offset=offset, explain=explain)
        )

    def recall(
        self,
        query: str,
        *,
        budget_tokens: int = BUDGET_TOKENS,
        conversation: ConversationId | None = None,
        archives: Sequence[ArchiveId] | None = None,
        blocks: bool = True,
        messages: bool = True,
        floor: float = 0.0,
        explain: bool = False,
    ) -> Recalled:
        """The best of what the agent remembers for a query, as one text within a budget, with its sources."""
        return self._portal.run(
            self._inner.recall(
                query,
                budget_tokens=budget_tokens,
                conversation=conversation,
                archives=archives,
                blocks=blocks,
                messages=messages,
                floor=floor,
                explain=explain,
            )
        )

    def update(self, **changes: Unpack[AgentChanges]) -> Agent:
        """The agent as changed; this object stays as it was looked up."""
        return Agent(self._portal, self._portal.run(self._inner.update(**changes)))

    def context(self, *, conversation: ConversationId | None = None) -> ContextOverview:
        """What fills the window of a conversation: tokens of each part, and what is free."""
        return self._portal.run(self._inner.context(conversation=conversation))

    def steps(
        self,
        *,
        conversation: ConversationId | None = None,
        run_id: RunId | None = None,
        limit: int = 20,
        before: StepId | None = None,
    ) -> Sequence[StepInfo]:
        """A page of the agent's model calls, newest first."""
        return self._portal.run(self._inner.steps(conversation=conversation, run_id=run_id, limit=limit, before=before))

    def request(self, step_id: StepId) -> ModelRequest:
        """What the model was sent at a step of this agent, built again from the log, byte for byte."""
        return self._portal.run(self._inner.request(step_id))

    def explain(self, step_id: StepId) -> Explanation:
        """What each part of a step's request took: tokens, the provider's cache, the price."""
        return self._portal.run(self._inner.explain(step_id))
