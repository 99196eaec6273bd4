"""`Tx`: what a unit of work may do inside one transaction, as synchronous verbs by noun.

Verbs by cost: `get` one, raises; `find` maybe None; `list` a bounded page, in order of sequence numbers unless said
otherwise. Every root row belongs to an organisation: a `Tx` sees its own organisation only.
"""

from __future__ import annotations

from typing import TypeVar

from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits
from perdure.storage.database.base import Database
from perdure.storage.migrations import MIGRATIONS, is_current
from perdure.storage.tables.agents import AgentRevisions, Agents
from perdure.storage.tables.archives import Archives
from perdure.storage.tables.batches import Batches, Callbacks
from perdure.storage.tables.blocks import Blocks
from perdure.storage.tables.conversations import Captures, Conversations
from perdure.storage.tables.counts import Queues, UseCounts
from perdure.storage.tables.deleted import UnfinishedCopies, unfinished_org
from perdure.storage.tables.events import Events
from perdure.storage.tables.identities import Identities
from perdure.storage.tables.message_rows import IdStarts
from perdure.storage.tables.messages import Messages
from perdure.storage.tables.nodes import Nodes
from perdure.storage.tables.passages import Passages
from perdure.storage.tables.providers import Providers
from perdure.storage.tables.resets import Gaps, Resets
from perdure.storage.tables.runs import Runs
from perdure.storage.tables.secrets import SandboxTable, Secrets
from perdure.storage.tables.sources import Owners, Sources
from perdure.storage.tables.steps import Prefixes, Steps, SystemMessages
from perdure.storage.tables.table import Table
from perdure.storage.tables.tools import Tools
from perdure.storage.tables.turns import Turns
from perdure.storage.tables.vectors import Vectors
from perdure.storage.upkeep.corrections import Corrections
from perdure.storage.upkeep.derived import Upkeep

T = TypeVar("T", bound=Table)


class Tx:
    """The verbs of one organisation on one connection. It has no state, so it serves many transactions."""

    def __init__(self, db: Database, org_id: OrgId = DEFAULT_ORG, limits: Limits = DEFAULT_LIMITS) -> None:
        self.org_id, self.limits, self._db = org_id, limits, db
        self.agents = Agents(db, org_id)
        self.blocks = Blocks(db, org_id, limits)
        self.identities = Identities(db, org_id, limits)
        self.archives = Archives(db, org_id, limits)
        self.passages = Passages(db, org_id)
        self.conversations = Conversations(db, org_id)
        self.captures = Captures(db, org_id)
        self.id_starts = IdStarts(db, org_id)
        self.messages = Messages(db, org_id)
        self.resets = Resets(db, org_id)
        self.gaps = Gaps(db, org_id)
        self.agent_revisions = AgentRevisions(db, org_id)
        self.turns = Turns(db, org_id)
        self.unfinished = UnfinishedCopies(db, org_id)
        self.runs = Runs(db, org_id)
        self.batches = Batches(db, org_id)
        self.callbacks = Callbacks(db, org_id)
        self.queues = Queues(db, org_id)
        self.used = UseCounts(db, org_id)
        self.steps = Steps(db, org_id)
        self.prefixes = Prefixes(db, org_id)
        self.system_messages = SystemMessages(db, org_id)
        self.nodes = Nodes(db, org_id)
        self.events = Events(db, org_id)
        self.tools = Tools(db, org_id, limits)
        self.providers = Providers(db, org_id)
        self.secrets = Secrets(db, org_id, limits)
        self.sandbox = SandboxTable(db, org_id, limits)
        self.vectors = Vectors(db, org_id)
        self.sources = Sources(db, org_id)
        self.corrections = Corrections(db, org_id)
        self.owners = Owners(db, org_id)
        self.upkeep = Upkeep(db, org_id)
        self._of_features: dict[type[Table], Table] = {}

    def is_current(self) -> bool:
        """Whether the store has this version's tables, or newer ones that fit. Raises: StoreTooNew, StoreIncomplete."""
        return is_current(self._db.rows, "the store", MIGRATIONS)

    def of_unfinished(self) -> Tx:
        """The verbs of what is still being copied in this organisation."""
        return Tx(self._db, unfinished_org(self.org_id), self.limits)

    def of(self, table: type[T]) -> T:
        """The verbs of a table that a feature adds, made at its first use."""
        if (found := self._of_features.get(table)) is None:
            found = self._of_features[table] = table(self._db, self.org_id, self.limits)
        assert isinstance(found, table)
        return found
