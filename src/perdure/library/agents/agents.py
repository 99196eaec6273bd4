"""Agents: making, finding, changing and removing them, with what belongs to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from perdure.app import App
from perdure.core.agents import DISCARDED, Agent, AgentFilter, AgentOrder
from perdure.core.blocks import Author, Block
from perdure.core.conversations import Conversation
from perdure.core.errors import AlreadyExists, FeatureMissing, NotFound
from perdure.core.features import Point
from perdure.core.hooks import ConversationEnd
from perdure.core.ids import AgentId, BlockId, IdentityId, MessageId, ToolId, is_id
from perdure.core.models import EXTRACTIVE
from perdure.core.runs import Run
from perdure.core.secrets import Secret
from perdure.core.specs import Tool, ToolCode
from perdure.core.text.forms import match_form, name_form
from perdure.core.tools.threads import run_in_own_thread
from perdure.domain.agents.options import CONTEXT_ENGINE
from perdure.domain.agents.units import AgentChanges, NewAgent, create_agent, update_agent
from perdure.domain.blocks.units import BLOCKS_CHANGED
from perdure.domain.secrets import replace_secrets
from perdure.engine.approvals.answers import WaitingCalls, find_all_pending
from perdure.engine.approvals.askers import helpers_waiting
from perdure.engine.conversations.reset import delete, delete_agent
from perdure.engine.ports import Ports, UnitInputs, with_next_model
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.run_request import NewMessage, check_input, tokens_of
from perdure.library.agents.identities import IdentityState, load_identities, set_identities
from perdure.library.messages.conversations import ids_in_view
from perdure.library.parts.checks import LIMIT_MAX, Page, check_page, check_text, outside
from perdure.library.parts.part import AsyncAgentPart, AsyncPart, reads
from perdure.storage.tx import Tx

NAMED_AGENTS = 10

NAME_HELPS = "choose another name, or use get_or_create_agent, which returns the agent that is there"
RENAME_HELPS = "choose another name"

SET_BELONGINGS: Point[[Tx, Ports, AgentId, Mapping[str, Sequence[str]]], None] = Point("set_belongings")
"""Give an agent these things of features (kind -> ids), such as folders, and no others. Raises: NotFound."""

SameName = Literal["allow", "refuse", "number"]

CompanionKind = Literal["sleeptime", "voice_sleeptime", "reflection"]
"""The kinds of agents that keep the memory of another one; one of `reflection` only proposes changes."""

SET_COMPANION: Point[[Tx, AgentId, CompanionKind | Literal[False], Author, UnitInputs], None] = Point("set_companion")
"""Give an agent a companion of this kind, or with False none. Raises: InvalidInput."""

AGENT_STATES: Point[[Tx, Sequence[AgentId]], Mapping[AgentId, Mapping[str, Any]]] = Point("agent_states")
"""What features know of agents: agent -> name -> value."""

Changes = AgentChanges | Callable[[Agent], AgentChanges]
"""New values of some fields, or a function that makes them from the agent as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAttachments:
    """New blocks, tools, folders, identities and secrets, each as a whole set; None leaves the current ones.

    Args:
        secrets: name -> value; an empty value leaves a secret that is there as it is.
        of_features: kind -> ids, such as those of folders.
    """

    block_ids: Sequence[BlockId] | None = None
    tool_ids: Sequence[ToolId] | None = None
    identity_ids: Sequence[IdentityId] | None = None
    secrets: Mapping[str, str] | None = None
    of_features: Mapping[str, Sequence[str]] = field(default_factory=dict)


NO_BELONGINGS = AgentAttachments()


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAgent:
    """An agent with everything that belongs to it, as one transaction reads it.

    Args:
        codes: the sources of its custom tools.
        message_ids: what its first conversation shows; see `ids_in_view`.
        run: the newer of its last two runs that has ended.
        pending: what its first conversation waits for, or a helper that works for it.
        of_features: what features know of it; see `AGENT_STATES`.
    """

    agent: Agent
    blocks: Sequence[Block]
    tools: Sequence[Tool]
    codes: Mapping[ToolId, ToolCode]
    identities: Sequence[IdentityState]
    message_ids: Sequence[MessageId]
    run: Run | None
    secrets: Sequence[Secret]
    pending: WaitingCalls | None
    of_features: Mapping[str, Any]


class AllAgents(AsyncPart):
    """All agents of the store."""

    async def add(
        self,
        new: NewAgent,
        *,
        belongings: AgentAttachments = NO_BELONGINGS,
        messages: Sequence[NewMessage] = (),
        same_name: SameName = "allow",
        companion: CompanionKind | None = None,
        author: Author | None = None,
    ) -> Agent:
        """A new agent with all that belongs to it, and its first messages; all in one transaction, or nothing.

        Args:
            same_name: if another agent has this name, whether to use it too, refuse it, or append a number.
            companion: the kind of the companion that it gets; None: it gets none.
        Raises: NameInvalid, InvalidInput, EmptyMessage, MessageTooLarge, BlockLimitExceeded, AlreadyExists;
            NotFound: a tool, block or folder; StoreError.
        """
        ports, inputs = self._ports, self._ports.inputs()
        now, by = inputs.now, author or outside()
        await _check_engine(self._ports, new.settings)
        for message in messages:
            message.check(ports.settings.limits)
        appended = [message.draft(MessageId(ports.ids.new("message"))) for message in messages]
        check_input(appended, ports.settings, may_be_empty=True)
        tokens = [tokens_of(draft, ports.counter, None) for draft in appended]

        def create(tx: Tx) -> Agent:
            """Create the agent with its belongings."""
            agent = create_agent(
                tx,
                replace(new, name=name_for(tx, new.name, same_name), timezone=new.timezone or ports.settings.timezone),
                ids=ports.ids,
                author=by,
                at=now,
            )
            _set_belongings(self._ports, tx, agent.id, belongings, at=now)
            if appended:
                tx.messages.append((agent.id, 0), appended, tokens, at=now)
            if companion is not None:
                _set_companion(tx, agent.id, companion, by, inputs)
                agent = tx.agents.get(agent.id)
            renew_system_message(tx, agent.id, 0, inputs)
            return agent

        return await ports.store.write(create)

    async def check_model(self, handle: str) -> None:
        """Check that an agent can have this model; a server of local models is asked before one is refused. Raises:
        InvalidInput; ModelNotFound, with the models that there are, and what helps."""
        check_text("model", handle)
        models = self._app.models
        await models.look_for(handle)
        if not models.takes(handle):
            raise models.not_found(handle)

    async def model_changes(self, handle: str | None) -> AgentChanges:
        """The change that pins an agent to a model; None: that has it follow the default. Raises: as `check_model`."""
        model = (await self._app.decide()).handle if handle is None else handle
        await self.check_model(model)
        return {"model": model, "follows_default": handle is None}

    async def resolve(self, name_or_id: str) -> Agent:
        """The agent of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
        check_text("an agent's name or id", name_or_id)
        return (await self._in_effect([await self._ports.store.read(_resolve_agent, name_or_id)]))[0]

    async def find_last_used(self) -> Agent | None:
        """The agent with the newest run, else the newest agent; None: there are no agents."""
        agent = await self._ports.store.read(lambda tx: tx.agents.find_latest())
        return None if agent is None else (await self._in_effect([agent]))[0]

    async def page(self, where: AgentFilter, page: Page, order: AgentOrder = "created") -> Sequence[Agent]:
        """A page of agents. Raises: InvalidInput; NotFound: the page begins at no agent."""
        return await self._in_effect(await self._ports.store.read(_load_page, where, page, order))

    async def _in_effect(self, agents: Sequence[Agent]) -> list[Agent]:
        """The agents with the models of their next runs; the default is decided if one waits for a language model."""
        if any(agent.follows_default and agent.model == EXTRACTIVE for agent in agents):
            await self._app.decide()
        return [with_next_model(agent, self._app.models) for agent in agents]

    async def states(self, where: AgentFilter, page: Page, order: AgentOrder = "created") -> Sequence[FullAgent]:
        """A page of agents, each with everything that belongs to it. Raises: as `page`."""
        return await self._ports.store.read(lambda tx: _load_states(self._app, tx, _load_page(tx, where, page, order)))

    async def last_used(self, agent_ids: Sequence[AgentId]) -> Mapping[AgentId, datetime]:
        """Agent -> when the newest message was added to it; an agent without any is left out."""
        return await self._ports.store.read(lambda tx: tx.conversations.last_message_times(agent_ids))

    async def tags(self, page: Page, *, text: str | None = None) -> Sequence[str]:
        """A page of the tags that agents and blocks have, in alphabetical order. The cursors are tags, which need not
        exist any more; `text` is a part of a tag, in any case. Raises: InvalidInput."""
        check_page(page)
        part = match_form(text or "")
        found = await self._ports.store.read(lambda tx: {*tx.agents.list_tags(), *tx.blocks.list_tags()})
        tags = sorted(tag for tag in found if part in match_form(tag))

        def query(*, above: str | None, below: str | None, newest_first: bool, limit: int) -> Sequence[str]:
            """The first tags between two, both excluded; `newest_first`: in the reverse order of the alphabet."""
            between = [tag for tag in tags if (above is None or tag > above) and (below is None or tag < below)]
            return (between[::-1] if newest_first else between)[:limit]

        return page.load(query, place_of=name_form)

    async def count(self, where: AgentFilter) -> int:
        """How many agents the filter lets through."""
        return await self._ports.store.read(lambda tx: tx.agents.count(where))


class AsyncAgentRecord(AsyncAgentPart):
    """What is stored of an agent and belongs to it; `AsyncAgent` has these methods."""

    async def state(self) -> FullAgent:
        """The agent with everything that belongs to it. Raises: NotFound."""
        return (await self._ports.store.read(lambda tx: _load_states(self._app, tx, [tx.agents.get(self.id)])))[0]

    @reads
    def memory(self, tx: Tx) -> tuple[Agent, Sequence[Block]]:
        """The agent and its blocks. Raises: NotFound."""
        return with_next_model(tx.agents.get(self.id), self._app.models), tx.blocks.list_by_agent(self.id)

    async def edit(
        self,
        changes: Changes,
        *,
        belongings: AgentAttachments = NO_BELONGINGS,
        companion: Callable[[Agent], CompanionKind | Literal[False] | None] = lambda agent: None,
        author: Author | None = None,
        same_name: Literal["allow", "refuse"] = "allow",
    ) -> Agent:
        """Change fields of the agent and what belongs to it, from its next model call on; return it as changed.

        Args:
            companion: the agent before -> the kind of companion that it is to have; False: none; None: as it is.
            same_name: whether another agent may have its new name.
        Raises: NotFound, NameInvalid, InvalidInput; AlreadyExists: its name, if that is refused.
        """
        inputs, by = self._ports.inputs(), author or outside()
        resolved = changes
        if callable(resolved):
            resolved = resolved(await self._ports.store.read(lambda tx: tx.agents.get(self.id)))
        await _check_engine(self._ports, resolved.get("settings"))

        def update(tx: Tx) -> Agent:
            """Change the agent's fields. Raises: NameInvalid, AlreadyExists: the new name."""
            tx.agents.lock(self.id)
            before = tx.agents.get(self.id)
            fields = changes(before) if callable(changes) else changes
            name = fields.get("name")
            if isinstance(name, str) and name != before.name:  # what is no text is refused below
                name_for(tx, name, same_name, helps=RENAME_HELPS)
            agent = update_agent(tx, self.id, fields, author=by, at=inputs.now)
            _set_belongings(self._ports, tx, self.id, belongings, at=inputs.now)
            if (kind := companion(before)) is not None:
                _set_companion(tx, self.id, kind, by, inputs)
            if belongings != NO_BELONGINGS or agent.settings_revision != before.settings_revision:
                renew_system_message(tx, self.id, 0, inputs)
            return tx.agents.get(self.id)

        return with_next_model(await delete(self._ports, update), self._app.models)  # a companion may go

    async def discard(self) -> Agent:
        """Hide the agent, stop its schedules, and return it; `restore` undoes it. Raises: NotFound."""
        return await self.edit(lambda agent: {"hidden": True, "tags": (*_without_discarded(agent), DISCARDED)})

    async def restore(self) -> Agent:
        """Bring back an agent that was discarded, and return it; another one stays as it is. Raises: NotFound."""
        return await self.edit(
            lambda agent: {"hidden": False, "tags": _without_discarded(agent)} if DISCARDED in agent.tags else {}
        )

    async def delete(self) -> None:
        """Delete an agent with history and companion; blocks and archives stay. Raises: InvalidInput, NotFound."""
        check_text("agent_id", self._agent_id)
        ended: Sequence[Conversation] = ()
        if "conversation_end" in self._ports.hooks.points:
            ended = await self._ports.store.read(lambda tx: tx.conversations.list(self.id, limit=LIMIT_MAX))
        await delete_agent(self.id, self._ports)
        for conversation in ended:
            await self._ports.hooks.fire(ConversationEnd(agent_id=self.id, conversation_id=conversation.id))


def _without_discarded(agent: Agent) -> tuple[str, ...]:
    """The agent's tags but the one of discarded agents."""
    return tuple(tag for tag in agent.tags if tag != DISCARDED)


async def _check_engine(ports: Ports, settings: Mapping[str, Any] | None) -> None:
    """Check that the context engine of these settings can be used here. Raises: InvalidInput."""
    if isinstance(settings, Mapping) and settings.get(CONTEXT_ENGINE) is not None:
        await run_in_own_thread(ports.engine_calls.engines.check, settings)  # it may import a package


def _load_states(app: App, tx: Tx, agents: Sequence[Agent]) -> Sequence[FullAgent]:
    """These agents, in their order, each with everything that belongs to it."""
    ids = [agent.id for agent in agents]
    of_features = AGENT_STATES(tx, ids)
    blocks, tools = tx.blocks.list_by_agents(ids), tx.tools.list_by_agents(ids)
    each_tool = {tool.id: tool for agent_tools in tools.values() for tool in agent_tools}  # several agents may have one
    each_tool |= {tool.id: tool for tool in tx.tools.with_own_names([*each_tool.values()])}
    codes = tx.tools.codes([tool.id for tool in each_tool.values() if tool.spec.kind == "custom"])
    secrets = tx.secrets.list_by_owners(ids)
    identities = tx.identities.list_by_agents(ids)
    each_identity = {one.id: one for agent_identities in identities.values() for one in agent_identities}
    states = {state.identity.id: state for state in load_identities(tx, [*each_identity.values()])}
    first = tx.conversations.list_by_keys([(id_, 0) for id_ in ids])
    pending = find_all_pending(tx, first)
    message_ids, runs = ids_in_view(tx, first, pending), tx.runs.list_newest(ids, limit=2)
    if working := {(id_, 0) for id_ in ids if (id_, 0) not in pending and any(not run.ended for run in runs[id_])}:
        waiting = {key: found[0] for key, found in helpers_waiting(tx, working).items()}
        of_helpers = find_all_pending(tx, [*waiting.values()])
        pending = {**pending, **{key: of_helpers[one.key] for key, one in waiting.items() if one.key in of_helpers}}
    return [
        FullAgent(
            agent=with_next_model(agent, app.models),
            blocks=blocks[agent.id],
            tools=[each_tool[tool.id] for tool in tools[agent.id]],
            codes=codes,
            identities=[states[identity.id] for identity in identities[agent.id]],
            message_ids=message_ids[agent.id, 0],
            run=next((run for run in runs[agent.id] if run.ended), None),
            secrets=secrets[agent.id],
            pending=pending.get((agent.id, 0)),
            of_features={name: value for states in of_features for name, value in states.get(agent.id, {}).items()},
        )
        for agent in agents
    ]


def _set_companion(
    tx: Tx, agent_id: AgentId, kind: CompanionKind | Literal[False], author: Author, inputs: UnitInputs
) -> None:
    """Give an agent a companion of this kind, or with False none. Raises: FeatureMissing: nothing here makes them."""
    if kind and not SET_COMPANION.functions:
        raise FeatureMissing(
            "groups", f"the agent can't have a companion of the kind {kind!r}", "create it without one"
        )
    SET_COMPANION(tx, agent_id, kind, author, inputs)


def _set_belongings(ports: Ports, tx: Tx, agent_id: AgentId, belongings: AgentAttachments, *, at: datetime) -> None:
    """Attach the things in `belongings` to an agent and detach others of their kinds; a kind that is None stays.
    Raises: NotFound, AlreadyExists, FeatureMissing."""
    if (tool_ids := belongings.tool_ids) is not None:
        wanted = {*tx.tools.names(tool_ids)}
        present = {tool.spec.name for tool in tx.tools.list_by_agent(agent_id)}
        tx.tools.detach(agent_id, *sorted(present - wanted))
        tx.tools.attach(agent_id, *sorted(wanted - present))
    if (block_ids := belongings.block_ids) is not None:
        for block in tx.blocks.list_by_agent(agent_id):
            if block.id not in block_ids:
                tx.blocks.detach(agent_id, block.id)
        tx.blocks.attach(agent_id, *block_ids)
        BLOCKS_CHANGED(tx, agent_id)
    if belongings.of_features:
        if any(belongings.of_features.values()) and not SET_BELONGINGS.functions:
            raise FeatureMissing("files", f"the agent can't have {', '.join(belongings.of_features)}", "leave them out")
        SET_BELONGINGS(tx, ports, agent_id, belongings.of_features)
    if belongings.identity_ids is not None:
        set_identities(tx, agent_id, belongings.identity_ids)
    if belongings.secrets is not None:
        replace_secrets(tx, agent_id, belongings.secrets, cipher=ports.cipher, at=at)


def name_for(tx: Tx, name: str, same_name: SameName, *, helps: str = NAME_HELPS) -> str:
    """The name that an agent gets for one that was asked for: see `AllAgents.add`. No other agent gets it before this
    transaction ends. Raises: AlreadyExists, with the advice `helps`."""
    if same_name == "allow":
        return name
    tx.agents.lock_names()
    if tx.agents.find_by_name(name) is None:
        return name
    if same_name == "refuse":
        raise AlreadyExists("agent", name, helps=helps)
    numbered = (f"{name} {number}" for number in itertools.count(2))
    return next(one for one in numbered if tx.agents.find_by_name(one) is None)


def _resolve_agent(tx: Tx, name_or_id: str) -> Agent:
    """The agent of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
    if is_id("agent", name_or_id):
        return tx.agents.get(AgentId(name_or_id))
    agent = tx.agents.find_by_name(name_or_id)
    if agent is None:
        names = dict.fromkeys(known.name for known in tx.agents.list())  # several agents may have one name
        known = ", ".join(map(repr, list(names)[:NAMED_AGENTS]))
        raise NotFound("agent", name_or_id, hint=f"there are {known}" if known else "there is none yet")
    return agent


def _load_page(tx: Tx, where: AgentFilter, page: Page, order: AgentOrder) -> Sequence[Agent]:
    """A page of agents. Raises: InvalidInput, NotFound."""
    check_page(page)
    return tx.agents.page(where=where, order=order, **page.arguments)
