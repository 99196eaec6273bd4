"""Perdure behind the interfaces of other memory systems, so that a program for one of them needs another import only.

`mem0`: `Memory` and `AsyncMemory`. `langgraph`: `PerdureStore`, a `BaseStore`. `zep`: sessions with `memory.get`.
"""
