"""Perdure: stateful agents that remember.

    from perdure import Perdure

    with Perdure("agents.db") as perdure:
        agent = perdure.create_agent("helper")
        print(agent.send("My name is Ada.").text)

The names below are the public ones. Each is loaded at its first use, so that `import perdure` itself takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.core.agents import Agent as AgentInfo
    from perdure.core.blocks import Author, Block, BlockVersion, MemoryEdit
    from perdure.core.conversations import CompactionSettings, Conversation, Reset
    from perdure.core.errors import *
    from perdure.core.events import Delta, MemoryEdited, MessageAdded, RunEnded, StoredEvent
    from perdure.core.forgetting.corrections import Correction
    from perdure.core.forgetting.origins import FactOrigin
    from perdure.core.hooks import Verdict
    from perdure.core.messages import Message, Question, Reasoning, Text, ToolCall, ToolDecision
    from perdure.core.models import Exchange, Model, ModelDelta, ModelProgress, ModelReply, ModelRequest
    from perdure.core.passages import Passage
    from perdure.core.ports import Clock, Embedder
    from perdure.core.runs import Run, Usage
    from perdure.core.secrets import Secret
    from perdure.core.specs import Tool, ToolCode, ToolOutcome
    from perdure.core.tools.answers import PendingCall, ToolReturn
    from perdure.core.tools.rules import (
        ChildTools,
        Conditional,
        ContinueLoop,
        ExitLoop,
        MaxCount,
        ParentTool,
        RequiredBeforeExit,
        RequiresApproval,
        RunFirst,
    )
    from perdure.features.costs.ledger import CostLedger
    from perdure.features.facts.fading.policy import TidyItem
    from perdure.features.facts.service import FactHistory
    from perdure.features.facts.values.facts import (
        Community,
        CommunityHit,
        Entity,
        Fact,
        FactContext,
        FactEvent,
        FactHit,
        FactRule,
        GraphCounts,
        Profile,
        ProfileEntry,
    )
    from perdure.features.files.folder_service import AsyncFolder
    from perdure.features.files.sync_folder_service import Folder
    from perdure.features.files.values import AgentFile, File
    from perdure.features.groups.companion_service import CompanionInfo, PassEdit, PassInfo
    from perdure.features.groups.replies import GroupReply, SpeakerReply
    from perdure.features.groups.service import AsyncGroup
    from perdure.features.groups.sync_service import Group
    from perdure.features.groups.values import (
        GroupMessage,
        GroupTurn,
        GroupTurnEnded,
        Speaker,
        SpeakerEvent,
        SpeakerFailed,
        SpeakerStarted,
    )
    from perdure.features.mcp.service import McpState
    from perdure.features.mcp.units import ToolsByStatus
    from perdure.features.mcp.values import McpServer, McpTool, ToolListing
    from perdure.features.origins.origin_values import AnswerOrigin, MemoryOrigin
    from perdure.features.origins.values import (
        ForgetPreview,
        ForgetResult,
        RevertResult,
        SourceSummary,
        UndoResult,
        WriteText,
    )
    from perdure.features.proposals.values import Proposal
    from perdure.features.schedules.values import Firing, Schedule
    from perdure.features.snapshots.values import Clone, Restored, Snapshot
    from perdure.library.names import *

# fmt: off
__all__ = [
    "Accepted", "AddressRefused", "Agent", "AgentAwaitsApproval", "AgentFailed", "AgentFile", "AgentInfo",
    "AlreadyExists", "AnswerDemanded", "AnswerInvalid", "AnswerOrigin", "ApprovalPending", "Archive", "AsyncAgent",
    "AsyncArchive", "AsyncFolder", "AsyncGroup", "AsyncPerdure", "Author", "Block", "BlockChanged",
    "BlockLimitExceeded", "BlockNotFound", "BlockProtected", "BlockReadOnly", "BlockVersion", "BodyUnreadable",
    "CallRepeated", "ChildTools", "CircularWait", "Clock", "Clone", "Community", "CommunityHit", "CompactionSettings",
    "CompanionInfo", "Conditional", "Conflict", "ContextOverview", "ContinueLoop", "Conversation", "ConversationBusy",
    "ConversionFailed", "Correction", "CostLedger", "DataTooLarge", "Delta", "Embedder", "EmbeddingMismatch",
    "EmptyMessage", "Entity", "Exchange", "ExitLoop", "Explanation", "ExtraMissing", "Fact", "FactContext", "FactEvent",
    "FactHistory", "FactHit", "FactOrigin", "FactRule", "FeatureMissing", "File", "FileEncodingInvalid",
    "FileNameInvalid", "FileTooLarge", "FileTypeUnsupported", "Firing", "Folder", "ForgetPreview", "ForgetResult",
    "GraphCounts", "Group", "GroupBusy", "GroupMessage", "GroupReply", "GroupTurn", "GroupTurnEnded", "Hits",
    "HookBlocked", "IdempotencyMismatch", "IllegalLog", "ImportResult", "ImportedMessage", "InvalidArguments",
    "InvalidInput", "IrreducibleFloor", "LeaseLost", "LimitReached", "LineNumbersInText", "MaxCount",
    "McpPrivateRefused", "McpServer", "McpState", "McpStdioRefused", "McpTool", "McpUnreachable", "MemoryEdit",
    "MemoryEdited", "MemoryOrigin", "Message", "MessageAdded", "MessageHit", "MessageTooLarge", "Model",
    "ModelAuthenticationFailed", "ModelDelta", "ModelError", "ModelLoading", "ModelNotFound", "ModelOverflow",
    "ModelOverloaded", "ModelProgress", "ModelQuotaExceeded", "ModelRateLimited", "ModelRefused", "ModelReply",
    "ModelReplyEmpty", "ModelReplyInvalid", "ModelRequest", "ModelRequestRefused", "ModelStreamCut",
    "ModelTakesNoTools", "ModelTimeout", "ModelUnreachable", "NameInvalid", "NewBlock", "NewPassage", "NoReply",
    "NotAStore", "NotFound", "NothingToCompact", "ParentTool", "PassEdit", "PassInfo", "Passage", "PassageHit",
    "PatchInvalid", "PendingCall", "Perdure", "PerdureError", "Profile", "ProfileEntry", "Proposal", "ProposalDecided",
    "ProposalOutdated", "ProposalRefused", "Question", "Reasoning", "Recalled", "Replay", "ReplayMismatch", "Reply",
    "ReplyTimeout", "RequestRefused", "RequiredBeforeExit", "RequiresApproval", "Reset", "Restored", "RevertResult",
    "Run", "RunEnded", "RunFailed", "RunFirst", "SandboxUnavailable", "Schedule", "ScheduleInvalid", "SchemaMismatch",
    "SearchReport", "Secret", "SecretKeyMissing", "SecretUnreadable", "Settings", "Snapshot", "SnapshotDiffers",
    "SourceInvalid", "SourceSummary", "Speaker", "SpeakerEvent", "SpeakerFailed", "SpeakerReply", "SpeakerStarted",
    "StepInfo", "StoreBusy", "StoreClosed", "StoreDamaged", "StoreError", "StoreFull", "StoreIncomplete",
    "StoreReadOnly", "StoreTooNew", "StoreUnavailable", "StoredEvent", "Text", "TextAmbiguous", "TextNotFound",
    "TidyItem", "TimeZoneUnknown", "TooMany", "TooManyHops", "TooManyMessages", "Tool", "ToolBuiltIn", "ToolCall",
    "ToolCode", "ToolDecision", "ToolError", "ToolHit", "ToolListing", "ToolOutcome", "ToolReturn", "ToolRulesInvalid",
    "ToolsByStatus", "TranscriptEntry", "UndoResult", "UntrustedWrite", "Usage", "Verdict", "VersionConflict", "Why",
    "WriteText", "hook", "tool",
]

_HOMES = {
    "core.agents": ("AgentInfo",),
    "core.tools.answers": ("PendingCall", "ToolReturn"),
    "core.blocks": ("Author", "Block", "BlockVersion", "MemoryEdit"),
    "core.conversations": ("CompactionSettings", "Conversation", "Reset"),
    "core.events": ("Delta", "MemoryEdited", "MessageAdded", "RunEnded", "StoredEvent"),
    "features.facts.values.facts": (
        "Community", "CommunityHit", "Entity", "Fact", "FactContext", "FactEvent", "FactHit", "FactRule", "GraphCounts",
        "Profile", "ProfileEntry",
    ),
    "features.groups.companion_service": ("CompanionInfo", "PassEdit", "PassInfo"),
    "features.groups.replies": ("GroupReply", "SpeakerReply"),
    "features.groups.service": ("AsyncGroup",),
    "features.groups.sync_service": ("Group",),
    "features.groups.values": (
        "GroupMessage", "GroupTurn", "GroupTurnEnded", "Speaker", "SpeakerEvent", "SpeakerFailed", "SpeakerStarted",
    ),
    "core.forgetting.corrections": ("Correction",),
    "core.forgetting.origins": ("FactOrigin",),
    "features.origins.origin_values": ("AnswerOrigin", "MemoryOrigin"),
    "features.origins.values": (
        "ForgetPreview", "ForgetResult", "RevertResult", "SourceSummary", "UndoResult", "WriteText",
    ),
    "core.hooks": ("Verdict",),
    "core.messages": ("Message", "Question", "Reasoning", "Text", "ToolCall", "ToolDecision"),
    "core.models": ("Exchange", "Model", "ModelDelta", "ModelProgress", "ModelReply", "ModelRequest"),
    "core.passages": ("Passage",),
    "core.ports": ("Clock", "Embedder"),
    "core.runs": ("Run", "Usage"),
    "features.facts.fading.policy": ("TidyItem",),
    "features.facts.service": ("FactHistory",),
    "features.costs.ledger": ("CostLedger",),
    "features.files.folder_service": ("AsyncFolder",),
    "features.files.sync_folder_service": ("Folder",),
    "features.files.values": ("AgentFile", "File"),
    "features.mcp.service": ("McpState",),
    "features.mcp.units": ("ToolsByStatus",),
    "features.mcp.values": ("McpServer", "McpTool", "ToolListing"),
    "features.proposals.values": ("Proposal",),
    "features.schedules.values": ("Firing", "Schedule"),
    "features.snapshots.values": ("Clone", "Restored", "Snapshot"),
    "core.secrets": ("Secret",),
    "core.tools.rules": (
        "ChildTools", "Conditional", "ContinueLoop", "ExitLoop", "MaxCount", "ParentTool", "RequiredBeforeExit",
        "RequiresApproval", "RunFirst",
    ),
    "core.specs": ("Tool", "ToolCode", "ToolOutcome"),
}
# fmt: on
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    home = importlib.import_module(f"perdure.{_HOME_OF.get(name, 'core.errors')}")
    if not hasattr(home, found := "Agent" if name == "AgentInfo" else name):
        home = importlib.import_module("perdure.library.names")
    value = getattr(home, found)
    globals()[name] = value  # the next time it is an ordinary attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
