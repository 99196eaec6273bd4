"""An agent: talk to it, search what it knows, look into its memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from perdure.context.request.explain import Explanation
from perdure.context.window.overview import ContextOverview
from perdure.core.agents import Agent
from perdure.core.blocks import Block
from perdure.core.conversations import CompactionSettings, Conversation, Reset
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import ArchiveId, ConversationId, MessageId, RunId, StepId
from perdure.core.messages import Image, Message, Role, Text
from perdure.core.models import Exchange, ModelRequest
from perdure.core.runs import IfBusy, Run
from perdure.domain.agents.units import AgentChanges
from perdure.domain.conversations.importing import ImportedMessage
from perdure.domain.conversations.units import ConversationChanges
from perdure.engine.conversations.edit import EditedPart
from perdure.engine.run.accept import Accepted
from perdure.library.approval import AsyncApproval
from perdure.library.archives import AsyncAgentArchives, AsyncArchival
from perdure.library.blocks import AsyncAgentBlocks
from perdure.library.checks import USER, check_text, utc
from perdure.library.client_tools import ClientTool, ClientTools, client_tools_of
from perdure.library.corrections import AsyncCorrections
from perdure.library.folders import AsyncAgentFiles
from perdure.library.images import Picture, load_images
from perdure.library.origins import Origin
from perdure.library.reply import Reply
from perdure.library.runs import AsyncRuns
from perdure.library.secrets import AsyncSecrets
from perdure.library.services import Services
from perdure.library.services.history import ImportResult
from perdure.library.services.messages import NewMessage
from perdure.library.services.search import BUDGET_TOKENS
from perdure.library.services.steps import StepInfo, overview_of
from perdure.library.services.transcripts import TranscriptEntry
from perdure.library.tools import AsyncAgentRules, AsyncAgentTools
from perdure.search.hits import Hits, MessageHit
from perdure.search.recalled import Recalled


class AsyncAgent(AsyncArchival, AsyncApproval, AsyncCorrections, AsyncRuns):
    """One agent. `info` holds its values at look-up time; everything else is read anew."""

    def __init__(self, services: Services, agent: Agent) -> None:
        self._services = services
        self.info = agent
        self.id = agent.id
        self.name = agent.name
        self.blocks = AsyncAgentBlocks(services, agent.id)
        self.archives = AsyncAgentArchives(services, agent.id)
        self.files = AsyncAgentFiles(services, agent.id)
        self.secrets = AsyncSecrets(services, agent.id)
        self.tools = AsyncAgentTools(services, agent.id)
        self.rules = AsyncAgentRules(services, agent.id)

    async def send(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        client_tools: Sequence[ClientTool] = (),
        images: Sequence[Picture] = (),
    ) -> Reply:
        """Send a message and wait for the whole reply.

        A reply with the stop reason `requires_approval` is not whole: its `pending` calls wait for `approve`, `deny` or
        `answer`.

        Args:
            conversation: by default the agent's first one.
            client_tools: tools that this program runs, besides the agent's own; they replace tools of the same name.
                This call runs the functions among them, as often as the model calls them.
            idempotency_key: the same key again is the same message: it is stored once, and its reply is returned.
            images: pictures behind the text: files, bytes or addresses.
            if_busy: whether to wait for the run of this conversation to end, or to raise ConversationBusy.
        Raises: EmptyMessage, MessageTooLarge, InvalidInput, NotFound, ConversationBusy, ApprovalPending,
            IdempotencyMismatch;
            StoreError: its text says whether the message is stored;
            RunFailed: the message is stored, but the model could not answer; `reply` holds the answer so far.
        """
        tools = client_tools_of(client_tools) if client_tools else None
        accepted = await self._submit(text, images, conversation, idempotency_key, if_busy, max_steps, tools=tools)
        return await self._reply_to(accepted, tools, conversation)

    async def stream(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        background: bool = False,
        client_tools: Sequence[ClientTool] = (),
        images: Sequence[Picture] = (),
    ) -> AsyncIterator[StoredEvent | Delta]:
        """Send a message and yield the stored events in order, and deltas while the model answers. When a run stops for
        functions among `client_tools`, the events of the run that continues follow.

        Leaving the loop early does not stop the run; `cancel` does. A run that fails ends with a `RunEnded` that says
        why.
        Raises: as `send`, but not RunFailed.
        """
        tools = client_tools_of(client_tools) if client_tools else None
        accepted = await self._submit(
            text, images, conversation, idempotency_key, if_busy, max_steps, background, tools
        )
        async for sent in self._follow(accepted, tools, conversation):
            yield sent

    async def submit(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        background: bool = True,
        client_tools: Sequence[ClientTool] = (),
        images: Sequence[Picture] = (),
    ) -> Accepted:
        """Send a message without waiting. When this returns, the message is durable and will be answered.

        You run the calls of `client_tools`, also those of functions: `pending` lists them.
        """
        tools = client_tools_of(client_tools) if client_tools else None
        return await self._submit(text, images, conversation, idempotency_key, if_busy, max_steps, background, tools)

    async def follow(self, run_id: RunId, *, after: int = 0) -> AsyncIterator[StoredEvent | Delta]:
        """The events of a run of this agent after number `after`, until it has ended. Raises: NotFound, StoreError."""
        async for sent in self._services.runs.follow(await self.run(run_id), after=after):
            yield sent

    async def cancel(self, run_id: RunId) -> Run:
        """Ask a run of this agent to stop; it ends with the stop reason `cancelled`. Calls at which it has stopped are
        given up. Raises: NotFound, StoreError."""
        return await self._services.runs.cancel(run_id, self.id)

    async def run(self, run_id: RunId) -> Run:
        """A run of this agent. Raises: NotFound, also for another agent's."""
        return await self._services.runs.get(run_id, self.id)

    async def exchange(self, step_id: StepId) -> Exchange | None:
        """What a step of this agent sent and received, with keys masked; None for a model without HTTP.

        The messages of the request are not in it: they are in the log. Raises: NotFound, also for another agent's.
        """
        return await self._services.steps.get_exchange(self.id, step_id)

    async def why(self, of: str, *, conversation: ConversationId | None = None) -> Origin:
        """Where a memory or an answer comes from. `of`: an id of a run, step, message, block or passage, or its
        beginning; `block-...:3` is a line; a summary's handle; or words of only one memory. Raises: InvalidInput: of
        several; NotFound, also for another agent's."""
        return await self._services.why.find_origin(of, agent_id=self.id, conversation=conversation)

    async def messages(
        self,
        *,
        conversation: ConversationId | None = None,
        limit: int = 100,
        before_seq: int | None = None,
        after_seq: int | None = None,
        newest_first: bool = False,
        reset: bool = False,
    ) -> Sequence[Message]:
        """A page of the history: of one conversation, or of all of them.

        Args:
            reset: also what a `reset` took out of view.
        Raises: InvalidInput, NotFound.
        """
        return await self._services.messages.list(
            self.id,
            conversation=conversation,
            limit=limit,
            before_seq=before_seq,
            after_seq=after_seq,
            newest_first=newest_first,
            reset=reset,
        )

    async def transcript(
        self,
        *,
        conversation: ConversationId | None = None,
        since: datetime | str | None = None,
        limit: int = 100,
        before_seq: int | None = None,
    ) -> Sequence[TranscriptEntry]:
        """The newest messages of one conversation, or of all, oldest first, each with its edits of memory.

        Args:
            since: only messages from this time on: a time with a zone, or an ISO date or time, where the agent lives.
        Raises: InvalidInput, NotFound.
        """
        return await self._services.transcripts.list(
            self.id, conversation=conversation, since=since, limit=limit, before_seq=before_seq
        )

    async def update_message(
        self, message_id: MessageId, text: str, *, part: EditedPart | None = None, call_id: str | None = None
    ) -> Message:
        """Change what a message says, for later requests, lists and searches, and return it; its pictures stay. What
        models were sent before is not changed; `undo` takes it back.

        Args:
            part: "reasoning" changes the reasoning of an answer; by default it is what the message says.
            call_id: the call whose result is changed, where a message holds several.
        Raises: NotFound; ConversationBusy: a run has not ended; InvalidInput: it has no such part, or is the system
            message; EmptyMessage, MessageTooLarge.
        """
        check_text("text", text)
        message = await self._services.messages.get(message_id)
        images = [one for one in message.parts if isinstance(one, Image)]
        return await self._services.messages.edit(
            self.id, message_id, part or message.role, (Text(text), *images), call_id=call_id, author=USER
        )

    async def message_count(self) -> int:
        """How many messages the history holds, over all conversations and with tool results."""
        return await self._services.messages.count(self.id)

    async def import_messages(
        self,
        messages: Iterable[ImportedMessage | Mapping[str, Any] | Sequence[Any]],
        *,
        conversation: ConversationId | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportResult:
        """Put history that took place elsewhere at the end of a conversation (default: the agent's first), in the order
        given.

        It is found by its own times. What the model's window has no room for is out of its view at once, behind
        summaries, and opened from there as anything else; no model is asked.

        Args:
            messages: (role, name, text, occurred_at), or `ImportedMessage`s, or mappings with the same names. Roles are
                user, assistant and system; times have a zone. All are checked before the first is stored.
            progress: takes how many messages are stored or skipped, after each transaction of up to 500.
        Raises: InvalidInput, naming the message by its place from 0, and nothing was stored; NotFound;
            ConversationBusy, ApprovalPending, StoreError: what was stored stays, and the same import goes on there,
            because a message that is there already is skipped.
        """
        return await self._services.messages.import_messages(
            self.id, messages, conversation=conversation, progress=progress
        )

    async def search(
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
        """The messages of the history that best match, best first; for an empty text the newest. `ran` says how.

        Args:
            roles: only messages of these roles; empty: of all.
            since, until: only messages of this time; times with a zone, both included.
            limit, offset: how many hits to return, and how many to skip before them; a search finds at most 1,000.
            explain: whether each hit says `why` it was found.
        Raises: InvalidInput: a time without a zone, an unknown role, a limit below 1 or above 10,000.
        """
        return await self._services.search.messages_of_agent(
            self.id,
            text,
            roles=roles,
            since=utc("since", since),
            until=utc("until", until),
            limit=limit,
            offset=offset,
            explain=explain,
        )

    async def recall(
        self,
        query: str,
        *,
        conversation: ConversationId | None = None,
        archives: Sequence[ArchiveId] | None = None,
        budget_tokens: int = BUDGET_TOKENS,
        blocks: bool = True,
        messages: bool = True,
        floor: float = 0.0,
        explain: bool = False,
    ) -> Recalled:
        """What the agent remembers about a query, as one text for any model, with its sources. Nothing is changed.

        Args:
            conversation, archives: only messages of this one, and passages of these; by default of all.
            budget_tokens: the most tokens of the text.
            blocks, messages: whether the text may contain blocks, and messages.
            floor: leave out passages and messages with a score below this, 0 to 1.
            explain: whether each source says `why` it was found.
        Raises: InvalidInput: an empty query, a budget below 1 or above 200,000, a floor outside 0 to 1; NotFound.
        """
        return await self._services.search.recall(
            query,
            agent_id=self.id,
            conversation_id=conversation,
            archives=archives,
            budget_tokens=budget_tokens,
            blocks=blocks,
            messages=messages,
            floor=floor,
            explain=explain,
        )

    async def update(self, **changes: Unpack[AgentChanges]) -> AsyncAgent:
        """Change fields of the agent and return it. They apply from its next model call on; this object keeps its old
        values.

        Args:
            changes: `name`, `model`, `system` (None: Perdure's own prompt), `description`, `timezone`, `tags`,
                `metadata` and `settings`, which are replaced as a whole, `hidden`. A missing field stays.
        Raises: NotFound, NameInvalid, ModelNotFound, StoreError; InvalidInput: a value that can't be used, no such
        field.
        """
        if "model" in changes:
            await self._services.agents.check_model(changes["model"])
        return AsyncAgent(self._services, await self._services.agents.update(self.id, changes))

    async def context(self, *, conversation: ConversationId | None = None) -> ContextOverview:
        """What fills the window of a conversation (default: the agent's first): tokens of each part, and what is free.

        The numbers are those that the engine certifies requests by: its estimates, corrected by what the provider
        measured. Raises: InvalidInput, NotFound.
        """
        return overview_of(await self._services.steps.preview(self.id, conversation))

    async def steps(
        self,
        *,
        conversation: ConversationId | None = None,
        run_id: RunId | None = None,
        limit: int = 20,
        before: StepId | None = None,
    ) -> Sequence[StepInfo]:
        """A page of the agent's model calls, newest first: all of them, or of one conversation or run.

        Args:
            before: the last step of the page before.
        Raises: InvalidInput; NotFound, also for what is another agent's.
        """
        return await self._services.steps.list(
            self.id, conversation=conversation, run_id=run_id, limit=limit, before=before
        )

    async def request(self, step_id: StepId) -> ModelRequest:
        """What the model was sent at a step of this agent, built again from the log, byte for byte.

        Its canonical form (`perdure.context.request.assemble.canonical`) is checked against the recorded digest; a step
        of an older store has none, and is not checked. `options` are not part of it: they are the agent's own if
        its settings are still the same, else the defaults; `exchange` tells which were sent.
        Raises: NotFound, also for another agent's; ReplayMismatch.
        """
        return await self._services.steps.build_request(self.id, step_id)

    async def explain(self, step_id: StepId) -> Explanation:
        """What each part of a step's request took: tokens, the provider's cache, the price.

        Raises: NotFound, also for another agent's; ReplayMismatch; InvalidInput: the catalog can't be read.
        """
        return await self._services.steps.explain(self.id, step_id)

    async def new_conversation(
        self, *, summary: str | None = None, isolated_blocks: Sequence[str] = ()
    ) -> Conversation:
        """A new line of messages over the same memory; `summary` says what it is about.

        Args:
            isolated_blocks: labels of the agent's blocks; the conversation sees and edits copies of its own instead.
        Raises: InvalidInput, BlockNotFound.
        """
        made = await self._services.conversations.create(self.id, {"summary": summary}, isolated_labels=isolated_blocks)
        return made.conversation

    async def isolated_blocks(self, conversation: ConversationId) -> Sequence[Block]:
        """The blocks that a conversation has for itself, in the order of the agent's blocks. Raises: NotFound."""
        return await self._services.blocks.list_isolated(self.id, conversation)

    async def fork_conversation(
        self,
        conversation: ConversationId | None = None,
        *,
        upto: MessageId | None = None,
        before: MessageId | None = None,
        hidden: bool = False,
    ) -> Conversation:
        """A new conversation with a copy of what another one (default: the agent's first) has in view, up to a message
        if one is given, or up to the one `before` it. A `hidden` one is in no list.

        Raises: InvalidInput: the message is not in its view; NotFound, also for another agent's.
        """
        forks = self._services.conversations
        made = await forks.fork(self.id, conversation, upto=upto, before=before, hidden=hidden)
        return made.conversation

    async def compact(
        self, *, conversation: ConversationId | None = None, settings: CompactionSettings | None = None
    ) -> str:
        """Take the oldest messages of a conversation (default: the agent's first) out of view, behind a summary, and
        return the summary. They stay in the log, and searches find them. A full window does that by itself. A field of
        `settings` wins over the agent's setting `compaction`.

        Raises: InvalidInput; NotFound; ConversationBusy: a run has not ended; ApprovalPending; ModelNotFound;
        NothingToCompact: no message is in view.
        """
        return (await self._services.conversations.compact(self.id, conversation, settings)).summary

    async def conversations(self, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """A page of the conversations, oldest first. Raises: InvalidInput: a limit below 1 or above 10,000."""
        return await self._services.conversations.list_of_agent(self.id, limit=limit, after_seq=after_seq)

    async def find_conversation(self, conversation: ConversationId | None = None) -> Conversation:
        """A conversation of this agent; by default its first. Raises: InvalidInput; NotFound, also for another
        agent's."""
        return await self._services.conversations.get(self.id, conversation)

    async def update_conversation(
        self, conversation: ConversationId, **changes: Unpack[ConversationChanges]
    ) -> Conversation:
        """Change fields of a conversation and return it.

        Args:
            changes: `summary` and `description`: what it is about, at most 20,000 characters each. `archived`: a chat
                does not continue it by itself; it still takes messages. `model`, `options` (by the names of an agent's
                settings) and `context_window_limit`: what it has in place of the agent's; None: the agent's.
                `model_settings`: the options as the server shows them. A missing field stays.
        Raises: InvalidInput: a value that can't be used, no such field; NotFound, also for another agent's.
        """
        return (await self._services.conversations.update(self.id, conversation, changes)).conversation

    async def delete_conversation(self, conversation: ConversationId) -> None:
        """Take a conversation, and what was said in it, out of every list, search and view; its rows stay in the log
        until the agent is deleted.

        Raises: NotFound, also for another agent's; InvalidInput: it is the agent's first, which can be `reset`;
        ConversationBusy: a run has not ended.
        """
        await self._services.conversations.delete(self.id, conversation)

    async def recompile(self, *, conversation: ConversationId | None = None, dry_run: bool = False) -> str:
        """The system prompt of a conversation (default: the agent's first), compiled with the memory of now, also for
        its next request; `dry_run` changes nothing. Edits of memory reach the model without it.

        Raises: InvalidInput; NotFound, also for another agent's.
        """
        return await self._services.conversations.recompile(self.id, conversation, dry_run=dry_run)

    async def reset(self, *, conversation: ConversationId | None = None) -> Sequence[Reset]:
        """Have a conversation begin anew, or all of them: what was said is out of view, for the model, in lists and in
        searches. Blocks, archives and files stay; so does the history, in the log (`messages(reset=True)`). Calls that
        wait for an answer are given up. One `Reset` of each conversation in which anything was said.

        Raises: InvalidInput, NotFound; ConversationBusy: a run has not ended; nothing is changed.
        """
        return await self._services.conversations.reset(self.id, conversation)

    async def resets(self, *, conversation: ConversationId | None = None, limit: int = 100) -> Sequence[Reset]:
        """When a conversation began anew, or each of them; newest first. Raises: InvalidInput, NotFound."""
        return await self._services.conversations.list_resets(self.id, conversation, limit=limit)

    async def _submit(
        self,
        text: str,
        images: Sequence[Picture],
        conversation: ConversationId | None,
        idempotency_key: str | None,
        if_busy: IfBusy,
        max_steps: int | None,
        background: bool = False,
        tools: ClientTools | None = None,
    ) -> Accepted:
        """Store a message and return its run."""
        check_text("text", text)
        return await self._services.messages.submit(
            self.id,
            (NewMessage((Text(text), *await load_images(images))),),
            conversation_seq=await self._seq_of(conversation),
            idempotency_key=idempotency_key,
            if_busy=if_busy,
            background=background,
            max_steps=max_steps,
            client_tools=None if tools is None else tools.shapes,
        )
