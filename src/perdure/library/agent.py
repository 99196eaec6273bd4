"""An agent: its parts, and searches over all that it knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from perdure.core.agents import Agent as AgentInfo
from perdure.core.facts.values import FactEvent, Profile
from perdure.core.forgetting.values import Correction, ForgetPreview, ForgetResult, UndoResult
from perdure.core.ids import AgentId, ArchiveId, ConversationId
from perdure.core.messages import Role
from perdure.core.text.reprs import short_repr
from perdure.domain.agents.units import AgentChanges
from perdure.library.archives import AsyncAgentArchives
from perdure.library.blocks import AsyncAgentBlocks
from perdure.library.checks import utc
from perdure.library.facts.facts import AsyncFacts
from perdure.library.facts.views import PROFILE_TOKENS
from perdure.library.files.folders import AsyncAgentFiles
from perdure.library.groups.companions import AsyncCompanion
from perdure.library.messages.conversations import AsyncConversations
from perdure.library.messages.history import AsyncHistory
from perdure.library.messages.sending import AsyncSending
from perdure.library.messages.transcripts import AsyncTranscripts
from perdure.library.origins import Origin
from perdure.library.passages import AsyncArchival
from perdure.library.runs.runs import AsyncRuns
from perdure.library.runs.steps import AsyncSteps
from perdure.library.schedules import AsyncEvents, AsyncSchedules
from perdure.library.services.search import BUDGET_TOKENS
from perdure.library.services.store import Services
from perdure.library.sources import AsyncSources
from perdure.library.tools.secrets import AsyncSecrets
from perdure.library.tools.tools import AsyncAgentRules, AsyncAgentTools
from perdure.search.hits import Hits, MessageHit, Recalled


class AsyncAgentById(
    AsyncSending, AsyncHistory, AsyncTranscripts, AsyncConversations, AsyncArchival, AsyncSteps, AsyncRuns, AsyncEvents
):
    """One agent, which nobody has looked up: its parts, and what is done with it."""

    __repr__ = short_repr("id")

    def __init__(self, services: Services, agent_id: AgentId | None) -> None:
        super().__init__(services.app, agent_id)
        self._services = services

    @property
    def blocks(self) -> AsyncAgentBlocks:
        """The agent's blocks, by label: read, edit, attach."""
        return AsyncAgentBlocks(self._app, self.id)

    @property
    def companion(self) -> AsyncCompanion:
        """The companion that tidies the agent's memory while nobody waits, if it has one."""
        return AsyncCompanion(self._app, self.id)

    @property
    def archives(self) -> AsyncAgentArchives:
        """The archives that are attached to the agent; the first takes what it stores."""
        return AsyncAgentArchives(self._app, self.id)

    @property
    def sources(self) -> AsyncSources:
        """What the agent's memory came from; take back what came from one source."""
        return AsyncSources(self._app, self.id)

    @property
    def facts(self) -> AsyncFacts:
        """What the agent knows as facts, with the times at which they were true and believed."""
        return AsyncFacts(self._app, self.id)

    async def profile(self, *, budget_tokens: int = PROFILE_TOKENS, user: str = "") -> Profile:
        """What is known about the user now: `facts.profile`. Raises: InvalidInput."""
        return await self.facts.profile(budget_tokens=budget_tokens, user=user)

    async def timeline(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int = 100,
        tags: Sequence[str] = (),
    ) -> Sequence[FactEvent]:
        """When facts began and ceased to be true: `facts.timeline`. Raises: InvalidInput."""
        return await self.facts.timeline(since, until, limit=limit, tags=tags)

    @property
    def files(self) -> AsyncAgentFiles:
        """The folders that are attached to the agent, and the files that it has open."""
        return AsyncAgentFiles(self._app, self.id)

    @property
    def schedules(self) -> AsyncSchedules:
        """The schedules of the agent: messages that are sent to it by themselves."""
        return AsyncSchedules(self._app, self.id)

    @property
    def secrets(self) -> AsyncSecrets:
        """The secrets of the agent, which its tools get in place of the store's of the same names."""
        return AsyncSecrets(self._app, self.id)

    @property
    def tools(self) -> AsyncAgentTools:
        """The tools that are attached to the agent."""
        return AsyncAgentTools(self._app, self.id)

    @property
    def rules(self) -> AsyncAgentRules:
        """The rules that say which tools the agent may call when."""
        return AsyncAgentRules(self._app, self.id)

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

    async def why(self, of: str, *, conversation: ConversationId | None = None) -> Origin:
        """Where a memory or an answer comes from. `of`: an id of a run, step, message, block or passage, or its
        beginning; `block-...:3` is a line; a summary's handle; or words of only one memory. Raises: InvalidInput: of
        several; NotFound, also for another agent's."""
        return await self._services.why.find_origin(of, agent_id=self.id, conversation=conversation)

    async def find_mentions(self, text_or_id: str) -> ForgetPreview:
        """Where a text stands: in blocks, archives, history, summaries, old versions, recorded requests.

        Args:
            text_or_id: a text, found in any letter case; or the id of a message or passage, for all of its text.
        Raises: NotFound; InvalidInput: the text is too short to look for everywhere, or too long.
        """
        return await self._services.corrections.find_mentions(self.id, text_or_id)

    async def forget(self, text_or_id: str, *, erase: bool = False) -> ForgetResult:
        """Take a text out of what the agent sees and finds; `undo` brings it back.

        A block loses the line, an archive the passage; messages and summaries read "[redacted]".

        Args:
            erase: remove it from the store's file instead: also from old versions, recorded requests, files, indexes
                and free space. This can't be undone, and others wait while the file is written anew.
        Raises: NotFound, InvalidInput; ConversationBusy: a run has not ended; Conflict: a file is still being read;
            StoreError.
        """
        return await self._services.corrections.forget(self.id, text_or_id, erase_text=erase)

    async def corrections(self, *, limit: int = 20) -> Sequence[Correction]:
        """What was corrected or forgotten, the newest first. Raises: InvalidInput, NotFound."""
        return await self._services.corrections.list(self.id, limit=limit)

    async def undo(self, number: int | None = None) -> UndoResult:
        """Undo a correction by its number, or the last. What was changed again since stays, and is named in
        `conflicts`.

        Raises: NotFound: there is nothing to undo; ConversationBusy: a run has not ended.
        """
        return await self._services.corrections.undo(self.id, number)


class AsyncAgent(AsyncAgentById):
    """One agent. `info` holds its values at look-up time; everything else is read anew."""

    __repr__ = short_repr("id", "name", "info.model")

    def __init__(self, services: Services, agent: AgentInfo) -> None:
        super().__init__(services, agent.id)
        self._info = agent

    @property
    def info(self) -> AgentInfo:
        """The agent's values when it was looked up: model, system prompt, tags, settings."""
        return self._info

    @property
    def name(self) -> str:
        """The agent's name when it was looked up."""
        return self._info.name

    async def update(self, **changes: Unpack[AgentChanges]) -> AsyncAgent:
        """Change fields of the agent and return it. They apply from its next model call on; this object keeps its old
        values.

        Args:
            changes: `name`, `model` (pinned; None: the default), `follows_default`, `system` (None: Perdure's own
                prompt), `description`, `timezone`, `tags`, `metadata` and `settings`, replaced as a whole, `hidden`. A
                missing field stays.
        Raises: NotFound, NameInvalid, ModelNotFound, StoreError; AlreadyExists: another agent has this name;
            InvalidInput: a value that can't be used, no such field.
        """
        if "model" in changes:
            changes |= await self._services.agents.model_changes(changes["model"])
        return AsyncAgent(self._services, await self._services.agents.update(self.id, changes, same_name="refuse"))
