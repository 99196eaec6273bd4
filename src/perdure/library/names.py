"""The public names of the library; `perdure` hands them on."""

from __future__ import annotations

from perdure.app import hook as hook
from perdure.app import tool as tool
from perdure.context.request.explain import Explanation as Explanation
from perdure.context.request.overview import ContextOverview as ContextOverview
from perdure.domain.archives.passages import NewPassage as NewPassage
from perdure.domain.blocks.units import NewBlock as NewBlock
from perdure.domain.conversations.importing import ImportedMessage as ImportedMessage
from perdure.domain.tools.units import ToolHit as ToolHit
from perdure.engine.run.accept import Accepted as Accepted
from perdure.library.agent import AsyncAgent as AsyncAgent
from perdure.library.memory.archives import AsyncArchive as AsyncArchive
from perdure.library.messages.paging import ImportResult as ImportResult
from perdure.library.messages.reply import Reply as Reply
from perdure.library.messages.transcripts import TranscriptEntry as TranscriptEntry
from perdure.library.perdure import AsyncPerdure as AsyncPerdure
from perdure.library.runs.replays import Replay as Replay
from perdure.library.runs.steps import StepInfo as StepInfo
from perdure.library.sync.agent import Agent as Agent
from perdure.library.sync.memory.archives import Archive as Archive
from perdure.library.sync.perdure import Perdure as Perdure
from perdure.search.ranking.hits import Hits as Hits
from perdure.search.ranking.hits import MessageHit as MessageHit
from perdure.search.ranking.hits import PassageHit as PassageHit
from perdure.search.ranking.hits import Recalled as Recalled
from perdure.search.ranking.hits import SearchReport as SearchReport
from perdure.search.ranking.hits import Why as Why
from perdure.settings import Settings as Settings
