"""Context engines: each decides what leaves the view of a conversation, and what stands for it.

`port` says what an engine is, `check` what Perdure demands of its plans. The others are the engines that Perdure ships.
The names below are for other programs, which derive engines of their own.
"""

from perdure.context.engines.port import Composition, Compressor, ContextEngine, EngineConversation, Turn
from perdure.context.engines.sliding_window import evict_count, evict_share
from perdure.context.window.plan import Evict, Merge, Plan, Situation, Stub, plan, split_atoms

__all__ = [
    "Composition",
    "Compressor",
    "ContextEngine",
    "EngineConversation",
    "Evict",
    "Merge",
    "Plan",
    "Situation",
    "Stub",
    "Turn",
    "evict_count",
    "evict_share",
    "plan",
    "split_atoms",
]
