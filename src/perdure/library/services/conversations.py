"""Conversations: the lines of messages of an agent, over the same memory.

Approvals: their calls that wait for a person or for their caller, and which tools ask for approval. Answers go the way
of messages: `MessageService.submit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.answers import PendingCall
from perdure.core.blocks import Author
from perdure.core.conversations import (
    EPHEMERAL,
    CompactionSettings,
    Conversation,
    ConversationFilter,
    ConversationKey,
    ConversationOrder,
    Reset,
)
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, BlockId, ConversationId, MessageId
from perdure.core.messages import ToolCall
from perdure.core.tools.rules import RequiresApproval
from perdure.domain.agents.units import NewAgent, create_agent, update_agent
from perdure.domain.blocks.units import isolate_blocks
from perdure.domain.conversations.units import ConversationChanges, changed_settings, check_summary, update_conversation
from perdure.engine.approvals.answers import Pending, check_edited, find_all_pending, open_calls, pending_calls
from perdure.engine.approvals.decisions import find_decisions
from perdure.engine.compaction.compact_view import Compacted, compact
from perdure.engine.conversations.importing import fork
from perdure.engine.conversations.reset import delete_conversation, reset_conversations
from perdure.engine.run.system_messages import recompile, renew_system_message
from perdure.library.checks import Page, check_limit, check_number, check_text, outside
from perdure.library.services.providers import ModelService
from perdure.library.units import find_conversation
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class ConversationState:
    """A conversation, the ids of the messages in its view, oldest first (see `ids_in_view`), and of the blocks that it
    has in place of its agent's."""

    conversation: Conversation
    message_ids: Sequence[MessageId]
    isolated_block_ids: Sequence[BlockId]


class ConversationService:
    """The operations on conversations. Where `conversation` is None, the agent's first is meant."""

    def __init__(self, app: App) -> None:
        self._app, self._ports, self._models = app, app.ports, ModelService(app)

    async def create(
        self,
        agent_id: AgentId,
        values: ConversationChanges | None = None,
        *,
        hidden: bool = False,
        isolated_labels: Sequence[str] = (),
        author: Author | None = None,
    ) -> ConversationState:
        """A new conversation.

        Args:
            hidden: it is in no page.
            isolated_labels: of the agent's blocks; the conversation sees and edits copies of its own in their place.
        Raises: InvalidInput, ModelNotFound; NotFound: there is no such agent; BlockNotFound.
        """
        values = await self._resolved(values or {}, agent_id)
        summary, settings = check_summary(values.get("summary")), changed_settings({}, values)
        conversation_id, inputs = ConversationId(self._ports.ids.new("conversation")), self._ports.inputs()

        def create(tx: Tx) -> ConversationState:
            conversation = tx.conversations.add(
                agent_id, conversation_id, at=inputs.now, summary=summary, settings=settings, hidden=hidden
            )
            isolate_blocks(
                tx, agent_id, conversation.seq, isolated_labels, inputs.ids, author=author or outside(), at=inputs.now
            )
            renew_system_message(tx, agent_id, conversation.seq, inputs)
            return _load_states(tx, [conversation])[0]

        return await self._ports.store.write(create)

    async def create_ephemeral(
        self, model: str, system: str, values: ConversationChanges | None = None, *, author: Author | None = None
    ) -> ConversationState:
        """A new conversation that belongs to no agent of a user: it and its agent are in no list, the agent has this
        model and prompt, no blocks and no tools, and is deleted with it. Raises: InvalidInput, ModelNotFound."""
        model = await self._models.resolve(model)
        values = {**(values or {}), "model": model}
        summary = check_summary(values.get("summary"))
        settings = changed_settings({EPHEMERAL: True}, values)
        conversation_id, inputs = ConversationId(self._ports.ids.new("conversation")), self._ports.inputs()
        new = NewAgent(name="Ephemeral conversation", model=model, system=system, tools=(), hidden=True)

        def create(tx: Tx) -> ConversationState:
            agent = create_agent(tx, new, ids=self._ports.ids, author=author or outside(), at=inputs.now)
            conversation = tx.conversations.add(
                agent.id, conversation_id, at=inputs.now, summary=summary, settings=settings, hidden=True
            )
            for seq in (0, conversation.seq):
                renew_system_message(tx, agent.id, seq, inputs)
            return _load_states(tx, [conversation])[0]

        return await self._ports.store.write(create)

    async def get(self, agent_id: AgentId | None, conversation: ConversationId | None = None) -> Conversation:
        """The agent's conversation; without an agent, anybody's. Raises: InvalidInput, NotFound."""
        return await self._ports.store.read(find_conversation, agent_id, conversation)

    async def get_state(
        self, agent_id: AgentId | None, conversation: ConversationId | None = None
    ) -> ConversationState:
        """The conversation with the messages in its view. Raises: InvalidInput, NotFound."""
        return await self._ports.store.read(
            lambda tx: _load_states(tx, [find_conversation(tx, agent_id, conversation)])[0]
        )

    async def list_states(
        self, where: ConversationFilter, page: Page, order: ConversationOrder
    ) -> Sequence[ConversationState]:
        """A page of conversations, without the agents' first ones. Raises: NotFound."""
        check_limit(page.limit)
        after = None if page.after is None else ConversationId(page.after)

        def read(tx: Tx) -> Sequence[ConversationState]:
            found = tx.conversations.page(where, order=order, ascending=page.ascending, limit=page.limit, after=after)
            return _load_states(tx, found)

        return await self._ports.store.read(read)

    async def compact(
        self, agent_id: AgentId | None, conversation: ConversationId | None, settings: CompactionSettings | None = None
    ) -> Compacted:
        """Take messages out of the view of a conversation, behind a summary. `settings` win over the agent's.

        Raises: InvalidInput, NotFound, Conflict, ConversationBusy, ApprovalPending, ModelNotFound, LimitReached;
            NothingToCompact: no message is in view.
        """
        if settings is not None and settings.model is not None:
            settings = replace(settings, model=await self._models.resolve(settings.model))
        found = await self.get(agent_id, conversation)
        compacted = await compact(found.agent_id, found.seq, settings, self._ports)
        self._app.companions.look(found.agent_id)
        return compacted

    async def fork(
        self,
        agent_id: AgentId | None,
        conversation: ConversationId | None,
        *,
        upto: MessageId | None = None,
        before: MessageId | None = None,
        hidden: bool = False,
    ) -> ConversationState:
        """A new conversation with a copy of what this one has in view, up to a message if one is given, or up to the
        one `before` it.

        Raises: InvalidInput, NotFound.
        """
        inputs, fork_id = self._ports.inputs(), ConversationId(self._ports.ids.new("conversation"))

        def write(tx: Tx) -> ConversationState:
            source = find_conversation(tx, agent_id, conversation)
            return _load_states(tx, [fork(tx, source, fork_id, inputs, upto=upto, before=before, hidden=hidden)])[0]

        return await self._ports.store.write(write)

    async def find_of_message(self, message_id: MessageId, agent_id: AgentId | None = None) -> Conversation:
        """The conversation that a message is in. Raises: NotFound, also for another agent's."""

        def read(tx: Tx) -> Conversation:
            message = tx.messages.get(message_id)
            if agent_id not in (None, message.agent_id):
                raise NotFound("message", message_id, hint="another agent has it")
            return tx.conversations.get_by_seq(message.agent_id, message.conversation_seq)

        return await self._ports.store.read(read)

    async def recompile(
        self,
        agent_id: AgentId | None,
        conversation: ConversationId | None,
        *,
        dry_run: bool = False,
        keep_time: bool = False,
    ) -> str:
        """The text of the conversation's system prompt, compiled with the memory of now, also for its next request.

        Args:
            dry_run: change nothing.
            keep_time: the text goes on to name the time of the last compilation.
        Raises: InvalidInput, NotFound.
        """
        inputs = self._ports.inputs()

        def write(tx: Tx) -> str:
            found = find_conversation(tx, agent_id, conversation)
            return recompile(tx, found.agent_id, found.seq, inputs, dry_run=dry_run, keep_time=keep_time)

        return await self._ports.store.write(write)

    async def list_of_agent(self, agent_id: AgentId, *, limit: int, after_seq: int) -> Sequence[Conversation]:
        """The conversations with a number above `after_seq`, oldest first. Raises: InvalidInput."""
        check_limit(limit)
        check_number("after_seq", after_seq)
        return await self._ports.store.read(
            lambda tx: tx.conversations.list(agent_id, limit=limit, after_seq=after_seq)
        )

    async def update(
        self, agent_id: AgentId | None, conversation: ConversationId | None, changes: ConversationChanges
    ) -> ConversationState:
        """The conversation as changed. Raises: InvalidInput, NotFound, ModelNotFound."""
        now = self._ports.clock.now()
        changes = await self._resolved(changes, agent_id)

        def update(tx: Tx) -> ConversationState:
            found = find_conversation(tx, agent_id, conversation)
            return _load_states(tx, [update_conversation(tx, found.id, changes, at=now)])[0]

        return await self._ports.store.write(update)

    async def _resolved(self, changes: ConversationChanges, agent_id: AgentId | None) -> ConversationChanges:
        """The changes with the handle here of the model that a client names. Raises: ModelNotFound."""
        handle = changes.get("model")
        return changes if handle is None else {**changes, "model": await self._models.resolve(handle, agent_id)}

    async def delete(
        self, agent_id: AgentId | None, conversation: ConversationId | None, *, author: Author | None = None
    ) -> None:
        """Take a conversation, and what was said in it, out of every list, search and view; its rows stay. An ephemeral
        one is removed with its agent."""
        found = await self.get(agent_id, conversation)
        await delete_conversation(found.id, self._ports, author=author or outside())

    async def reset(
        self, agent_id: AgentId, conversation: ConversationId | None = None, *, author: Author | None = None
    ) -> Sequence[Reset]:
        """Take what was said in a conversation, or with None in all of the agent's, out of view."""
        seq = None if conversation is None else (await self.get(agent_id, conversation)).seq
        return await reset_conversations(agent_id, seq, self._ports, author=author or outside())

    async def list_resets(
        self, agent_id: AgentId, conversation: ConversationId | None = None, *, limit: int
    ) -> Sequence[Reset]:
        """The resets of a conversation, or with None of all of the agent's; newest first."""
        check_limit(limit)
        seq = None if conversation is None else (await self.get(agent_id, conversation)).seq
        return await self._ports.store.read(lambda tx: tx.resets.list(agent_id, conversation_seq=seq, limit=limit))


def ids_in_view(
    tx: Tx, conversations: Sequence[Conversation], pending: Mapping[ConversationKey, Pending]
) -> Mapping[ConversationKey, Sequence[MessageId]]:
    """Conversation -> the ids of its system message and of its messages in view, oldest first; but the one whose calls
    wait comes last, behind the results of other calls: clients look there for what they have to answer."""
    keys = [one.key for one in conversations]
    systems, shown = tx.system_messages.find_ids(keys), tx.conversations.list_view_ids(keys)
    last = {one.message.id for one in pending.values()}
    ids = {key: [*([systems[key]] if key in systems else []), *shown[key]] for key in keys}
    return {key: sorted(some, key=last.__contains__) for key, some in ids.items()}


def _load_states(tx: Tx, conversations: Sequence[Conversation]) -> Sequence[ConversationState]:
    """The conversations, each with the ids of the messages in its view, and of its own blocks."""
    message_ids = ids_in_view(tx, conversations, find_all_pending(tx, conversations))
    blocks = tx.blocks.list_isolated_of([*message_ids])
    return [
        ConversationState(
            one,
            message_ids=message_ids[one.key],
            isolated_block_ids=[block_id for block_id in blocks[one.key].values() if block_id is not None],
        )
        for one in conversations
    ]


LISTED_MAX = 1_000
"""Conversations that are looked at for one answer."""


class ApprovalService:
    """The operations on calls that wait. Where `conversation` is None, the agent's first is meant."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports

    async def list(self, agent_id: AgentId, conversation: ConversationId | None = None) -> Sequence[PendingCall]:
        """The calls that wait in a conversation, in the order of the model's answer. Raises: InvalidInput, NotFound."""
        return await self._ports.store.read(lambda tx: pending_calls(tx, find_conversation(tx, agent_id, conversation)))

    async def list_all(self) -> Sequence[tuple[str, PendingCall]]:
        """The calls that wait in the first 1,000 conversations of all agents, each with the name of its agent."""

        def read(tx: Tx) -> Sequence[tuple[str, PendingCall]]:
            return [
                (tx.agents.get(line.agent_id).name, call)
                for line in tx.conversations.list_pending(limit=LISTED_MAX)
                for call in pending_calls(tx, line)
            ]

        return await self._ports.store.read(read)

    async def list_open(self, agent_id: AgentId, conversation: ConversationId | None = None) -> Sequence[ToolCall]:
        """The calls that the conversation's next run begins with, decided or not, with the arguments as decided."""
        return await self._ports.store.read(lambda tx: open_calls(tx, find_conversation(tx, agent_id, conversation)))

    async def find_decisions(
        self, agent_id: AgentId, conversation: ConversationId | None = None, call_id: str | None = None
    ) -> Sequence[str]:
        """This call, if it was answered; without one the calls that a person decided last, if nothing came after."""
        return await self._ports.store.read(
            lambda tx: find_decisions(tx, find_conversation(tx, agent_id, conversation), call_id)
        )

    async def find_decided(self, agent_id: AgentId, call_id: str) -> Sequence[ConversationId]:
        """The agent's conversations in which a call of this id was answered."""

        def read(tx: Tx) -> Sequence[ConversationId]:
            lines = tx.conversations.list(agent_id, limit=LISTED_MAX)
            return [line.id for line in lines if find_decisions(tx, line, call_id)]

        return await self._ports.store.read(read)

    async def check_arguments(self, call: PendingCall, arguments: str) -> None:
        """Check that the call could be approved with these arguments, as JSON. Raises: AnswerInvalid."""
        await self._ports.store.read(check_edited, call, arguments)

    async def require(
        self, agent_id: AgentId, tool: str, required: bool = True, *, author: Author | None = None
    ) -> None:
        """Require the approval of a person for each call of a tool, or no longer require it."""
        check_text("tool", tool)
        now = self._ports.clock.now()

        def require(tx: Tx) -> None:
            tx.agents.lock(agent_id)
            settings = _approval_settings(tx, tx.agents.get(agent_id), tool, required=required)
            update_agent(tx, agent_id, {"settings": settings}, author=author or outside(), at=now)

        await self._ports.store.write(require)


def _approval_settings(tx: Tx, agent: Agent, name: str, *, required: bool) -> dict[str, object]:
    """The agent's settings, in which calls of this tool need a person's approval, or do not."""
    tool = next((tool for tool in tx.tools.list_by_agent(agent.id) if tool.spec.name == name), None)
    if tool is None:
        raise NotFound("tool", name, hint=f"agent {agent.name!r} has no such tool")
    rules = [
        shape
        for shape in agent.settings.get("tool_rules", ())
        if not (shape["type"] == RequiresApproval.type and shape["tool_name"] == name)
    ]
    waived = [one for one in agent.settings.get("approval_waived", ()) if one not in (tool.id, name)]
    if required:
        rules.append({"tool_name": name, "type": RequiresApproval.type, "prompt_template": None})
    elif not required and tool.spec.requires_approval:
        waived.append(tool.id)  # not its name, which another tool may get
    settings = {key: value for key, value in agent.settings.items() if key not in ("tool_rules", "approval_waived")}
    settings |= {"tool_rules": rules} if rules else {}
    return settings | ({"approval_waived": waived} if waived else {})
