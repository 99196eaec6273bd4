"""The library face: open a store, make agents, talk to them, look into their memory.

`AsyncPerdure` does the work; `Perdure` is the same with plain calls, by one event loop in one thread; `sync` is
generated from the asynchronous classes.
"""

from __future__ import annotations

from perdure.app import hook, tool
from perdure.context.costs.ledger import CostLedger
from perdure.context.request.explain import Explanation
from perdure.context.window.overview import ContextOverview
from perdure.domain.archives.passages import NewPassage
from perdure.domain.blocks.units import NewBlock
from perdure.domain.conversations.importing import ImportedMessage
from perdure.domain.mcp import ToolsByStatus
from perdure.domain.tools.units import ToolHit
from perdure.engine.run.accept import Accepted
from perdure.library.agent import AsyncAgent
from perdure.library.archives import AsyncArchive
from perdure.library.folders import AsyncFolder
from perdure.library.groups.groups import AsyncGroup
from perdure.library.groups.replies import GroupReply, SpeakerReply
from perdure.library.messages.paging import ImportResult
from perdure.library.messages.transcripts import TranscriptEntry
from perdure.library.origins.values import AnswerOrigin, FactOrigin, MemoryOrigin
from perdure.library.perdure import AsyncPerdure
from perdure.library.reply import Reply
from perdure.library.runs.replays import Replay
from perdure.library.runs.steps import StepInfo
from perdure.library.sync.agent import Agent
from perdure.library.sync.archives import Archive
from perdure.library.sync.folders import Folder
from perdure.library.sync.groups.groups import Group
from perdure.library.sync.perdure import Perdure
from perdure.library.tools.mcp import McpState
from perdure.search.hits import Hits, MessageHit, PassageHit, Recalled, SearchReport, Why
from perdure.settings import Settings

__all__ = [
    "Accepted",
    "Agent",
    "AnswerOrigin",
    "Archive",
    "AsyncAgent",
    "AsyncArchive",
    "AsyncFolder",
    "AsyncGroup",
    "AsyncPerdure",
    "ContextOverview",
    "CostLedger",
    "Explanation",
    "FactOrigin",
    "Folder",
    "Group",
    "GroupReply",
    "Hits",
    "ImportResult",
    "ImportedMessage",
    "McpState",
    "MemoryOrigin",
    "MessageHit",
    "NewBlock",
    "NewPassage",
    "PassageHit",
    "Perdure",
    "Recalled",
    "Replay",
    "Reply",
    "SearchReport",
    "Settings",
    "SpeakerReply",
    "StepInfo",
    "ToolHit",
    "ToolsByStatus",
    "TranscriptEntry",
    "Why",
    "hook",
    "tool",
]
