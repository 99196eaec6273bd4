"""The library face: open a store, make agents, talk to them, look into their memory.

`AsyncPerdure` does the work; `Perdure` is the same with plain calls, by one event loop in one thread; `sync` is
generated from the asynchronous classes.
"""

from __future__ import annotations

from perdure.app import hook, tool
from perdure.context.request.explain import Explanation
from perdure.context.window.overview import ContextOverview
from perdure.domain.archives.passages import NewPassage
from perdure.domain.blocks.units import NewBlock
from perdure.domain.conversations.importing import ImportedMessage
from perdure.domain.forgetting import TidyItem
from perdure.domain.tools.units import ToolHit
from perdure.engine.run.accept import Accepted
from perdure.library.agent import AsyncAgent
from perdure.library.archives import AsyncArchive
from perdure.library.facts.facts import FactHistory
from perdure.library.messages.paging import ImportResult
from perdure.library.messages.transcripts import TranscriptEntry
from perdure.library.origins.values import AnswerOrigin, FactOrigin, MemoryOrigin
from perdure.library.perdure import AsyncPerdure
from perdure.library.reply import Reply
from perdure.library.runs.replays import Replay
from perdure.library.runs.steps import StepInfo
from perdure.library.sync.agent import Agent
from perdure.library.sync.archives import Archive
from perdure.library.sync.perdure import Perdure
from perdure.search.hits import FactHit, Hits, MessageHit, PassageHit, Recalled, SearchReport, Why
from perdure.settings import Settings

__all__ = [
    "Accepted",
    "Agent",
    "AnswerOrigin",
    "Archive",
    "AsyncAgent",
    "AsyncArchive",
    "AsyncPerdure",
    "ContextOverview",
    "Explanation",
    "FactHistory",
    "FactHit",
    "FactOrigin",
    "Hits",
    "ImportResult",
    "ImportedMessage",
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
    "StepInfo",
    "TidyItem",
    "ToolHit",
    "TranscriptEntry",
    "Why",
    "hook",
    "tool",
]
