"""What the server, the pages and the CLI reach in a store, beside what the library offers to programs.

Every noun of the store is an attribute (`library.runs`), and what has an id is reached by it, without a query
(`library.agent_of(id)`): what is done with it raises NotFound if it is not there.
"""

from __future__ import annotations

from perdure.app import App
from perdure.core.ids import AgentId, ArchiveId
from perdure.library.agent import AsyncAgentById
from perdure.library.agents.agents import AllAgents
from perdure.library.agents.identities import AllIdentities
from perdure.library.ids import ShortIds
from perdure.library.memory.archives import AsyncArchiveById
from perdure.library.memory.passages import AsyncPassages
from perdure.library.memory.search import AsyncSearch
from perdure.library.messages.approval import AsyncApproval
from perdure.library.messages.conversations import AsyncConversations
from perdure.library.messages.history import AsyncHistory
from perdure.library.parts.providers import AllProviders, ModelHandles
from perdure.library.prompts import Prompts
from perdure.library.runs.jobs import Jobs
from perdure.library.runs.runs import AsyncRuns
from perdure.library.runs.steps import AsyncSteps
from perdure.library.tools.secrets import SandboxVariables
from perdure.library.transfer import Transfer
from perdure.library.upkeep import StoreUpkeep


class StoreParts:
    """The nouns of one store; those that programs use too are properties of `AsyncPerdure`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.all_agents = AllAgents(app)
        self.approvals = AsyncApproval(app)
        self.conversations = AsyncConversations(app)
        self.handles = ModelHandles(app)
        self.identities = AllIdentities(app)
        self.ids = ShortIds(app)
        self.jobs = Jobs(app)
        self.messages = AsyncHistory(app)
        self.prompts = Prompts(app)
        self.providers = AllProviders(app)
        self.runs = AsyncRuns(app)
        self.sandbox = SandboxVariables(app)
        self.search = AsyncSearch(app)
        self.steps = AsyncSteps(app)
        self.transfer = Transfer(app)
        self.upkeep = StoreUpkeep(app)

    def agent_of(self, agent_id: AgentId | None) -> AsyncAgentById:
        """Return the agent with this id without looking it up; its methods raise NotFound if there is none.

        Args:
            agent_id: None: any agent, for what a conversation or run names.
        """
        return AsyncAgentById(self._app, agent_id)

    def archive_of(self, archive_id: ArchiveId) -> AsyncArchiveById:
        """The archive of this id."""
        return AsyncArchiveById(self._app, archive_id)

    def passages_of(self, owner_id: ArchiveId | AgentId) -> AsyncPassages:
        """The passages of an archive or agent; what is changed by this can't be undone."""
        return AsyncPassages(self._app, owner_id)
