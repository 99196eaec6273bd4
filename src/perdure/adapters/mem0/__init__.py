"""mem0's `Memory` and `AsyncMemory` over Perdure's facts."""

from perdure.adapters.mem0.async_memory import AsyncMemory, Memory

__all__ = ["AsyncMemory", "Memory"]
