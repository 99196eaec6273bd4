"""An agent: its parts, and what is done with it."""

from __future__ import annotations

from typing import Unpack

from perdure.app import App
from perdure.core.agents import Agent as AgentInfo
from perdure.core.text.reprs import short_repr
from perdure.domain.agents.units import AgentChanges
from perdure.library.agents.agents import AllAgents, AsyncAgentRecord
from perdure.library.feature_parts import AsyncAgentFeatures
from perdure.library.memory.archives import AsyncAgentArchives
from perdure.library.memory.blocks import AsyncAgentBlocks
from perdure.library.memory.passages import AsyncArchival
from perdure.library.messages.conversations import AsyncConversations
from perdure.library.messages.history import AsyncHistory
from perdure.library.messages.retries import AsyncRetries
from perdure.library.messages.sending import AsyncSending
from perdure.library.messages.transcripts import AsyncTranscripts
from perdure.library.runs.runs import AsyncRuns
from perdure.library.runs.steps import AsyncSteps
from perdure.library.tools.secrets import AsyncSecrets
from perdure.library.tools.tools import AsyncAgentRules, AsyncAgentTools


class AsyncAgentById(
    AsyncSending,
    AsyncHistory,
    AsyncTranscripts,
    AsyncRetries,
    AsyncConversations,
    AsyncArchival,
    AsyncSteps,
    AsyncRuns,
    AsyncAgentRecord,
    AsyncAgentFeatures,
):
    """One agent, which nobody has looked up: its parts, and what is done with it."""

    __repr__ = short_repr("id")

    @property
    def blocks(self) -> AsyncAgentBlocks:
        """The agent's blocks, by label: read, edit, attach."""
        return AsyncAgentBlocks(self._app, self.id)

    @property
    def archives(self) -> AsyncAgentArchives:
        """The archives that are attached to the agent; the first takes what it stores."""
        return AsyncAgentArchives(self._app, self.id)

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


class AsyncAgent(AsyncAgentById):
    """One agent. `info` holds its values at look-up time; everything else is read anew."""

    __repr__ = short_repr("id", "name", "info.model")

    def __init__(self, app: App, agent: AgentInfo) -> None:
        super().__init__(app, agent.id)
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
        """Change fields, from the next model call on, and return the agent; this object keeps its old values.

        Args:
            changes: `name`, `model` (pinned; None: the default), `follows_default`, `system` (None: Perdure's own
                prompt), `description`, `timezone`, `tags`, `metadata` and `settings`, replaced as a whole, `hidden`. A
                missing field stays.
        Raises: NotFound, NameInvalid, ModelNotFound, StoreError; AlreadyExists: another agent has this name;
            InvalidInput: a value that can't be used, no such field.
        """
        if "model" in changes:
            changes |= await AllAgents(self._app).model_changes(changes["model"])
        return AsyncAgent(self._app, await self.edit(changes, same_name="refuse"))
