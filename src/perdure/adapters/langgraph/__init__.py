"""LangGraph's two interfaces for what lasts: `PerdureStore`, a `BaseStore`, and `PerdureSaver`, a checkpointer."""

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    raise ImportError("LangGraph's interfaces need its base classes: install 'perdure[langgraph]'") from error

from perdure.adapters.langgraph.checkpoints import PerdureSaver
from perdure.adapters.langgraph.store import PerdureStore

__all__ = ["PerdureSaver", "PerdureStore"]
