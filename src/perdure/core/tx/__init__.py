"""`Tx`: what a unit of work may do inside one transaction, as synchronous verbs by noun.

Verbs by cost: `get` one, raises; `find` maybe None; `list` a bounded page, in order of sequence numbers unless said
otherwise. Every root row belongs to an organisation: a `Tx` sees its own organisation only.
"""

from __future__ import annotations

from typing import Protocol

from perdure.core.ids import OrgId
from perdure.core.limits import Limits
from perdure.core.tx.agents import Agents
from perdure.core.tx.archives import Archives
from perdure.core.tx.blocks import Blocks
from perdure.core.tx.captures import Captures, Waiting
from perdure.core.tx.conversations import Conversations
from perdure.core.tx.events import Events
from perdure.core.tx.files import AgentFiles, Files
from perdure.core.tx.folders import Folders
from perdure.core.tx.found import Matches, Postings
from perdure.core.tx.mcp import Mcp
from perdure.core.tx.messages import MessageFilter, Messages, Turn
from perdure.core.tx.nodes import Nodes
from perdure.core.tx.passages import PassageFilter, Passages
from perdure.core.tx.resets import Resets
from perdure.core.tx.runs import Runs
from perdure.core.tx.secrets import Secrets
from perdure.core.tx.steps import Prefixes, Steps
from perdure.core.tx.tools import ToolFilter, Tools
from perdure.core.tx.upkeep import Checked, CheckedBlocks, Fault, FaultKind, Owner, Upkeep
from perdure.core.tx.vectors import Claim, OwnerKind, Scope, ScopeCounts, VectorBlock, VectorRow, Vectors

__all__ = [
    "AgentFiles",
    "Agents",
    "Archives",
    "Blocks",
    "Captures",
    "Checked",
    "CheckedBlocks",
    "Claim",
    "Conversations",
    "Events",
    "Fault",
    "FaultKind",
    "Files",
    "Folders",
    "Matches",
    "Mcp",
    "MessageFilter",
    "Messages",
    "Nodes",
    "Owner",
    "OwnerKind",
    "PassageFilter",
    "Passages",
    "Postings",
    "Prefixes",
    "Resets",
    "Runs",
    "Scope",
    "ScopeCounts",
    "Secrets",
    "Steps",
    "ToolFilter",
    "Tools",
    "Turn",
    "Tx",
    "Upkeep",
    "VectorBlock",
    "VectorRow",
    "Vectors",
    "Waiting",
]


class Tx(Protocol):
    """One transaction."""

    @property
    def org_id(self) -> OrgId: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def blocks(self) -> Blocks: ...
    @property
    def archives(self) -> Archives: ...
    @property
    def passages(self) -> Passages: ...
    @property
    def folders(self) -> Folders: ...
    @property
    def files(self) -> Files: ...
    @property
    def agent_files(self) -> AgentFiles: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def captures(self) -> Captures: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def resets(self) -> Resets: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def prefixes(self) -> Prefixes: ...
    @property
    def nodes(self) -> Nodes: ...
    @property
    def events(self) -> Events: ...
    @property
    def tools(self) -> Tools: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def mcp(self) -> Mcp: ...
    @property
    def vectors(self) -> Vectors: ...
    @property
    def upkeep(self) -> Upkeep: ...
