"""The value of a tool's parameter `agent_state`: the agent and its blocks, to read and to change.

Changes are kept here; they go back with the result, and become edits of the agent's memory outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class BlockState:
    """One block: `label`, and `value`, which can be set."""

    def __init__(self, label: str, value: str) -> None:
        self._label = label
        self._value = value

    @property
    def label(self) -> str:
        return self._label

    @property
    def value(self) -> str:
        return self._value

    @value.setter
    def value(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"the value of block {self._label!r} must be text, not {type(value).__name__}")
        self._value = value

    def __repr__(self) -> str:
        return f"Block(label={self._label!r}, value={self._value!r})"


class MemoryState:
    """The agent's blocks by label."""

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self._before = dict(blocks)
        self._blocks = {label: BlockState(label, value) for label, value in blocks.items()}

    @property
    def blocks(self) -> list[BlockState]:
        return list(self._blocks.values())

    def get_block(self, label: str) -> BlockState:
        """The block with this label. Raises: KeyError: there is none; the text lists the labels that there are."""
        try:
            return self._blocks[label]
        except KeyError:
            raise KeyError(f"the agent has no block {label!r}: it has {', '.join(self._blocks) or 'none'}") from None

    def get_blocks(self) -> list[BlockState]:
        return self.blocks

    def list_block_labels(self) -> list[str]:
        return list(self._blocks)

    def update_block_value(self, label: str, value: str) -> None:
        """Set the value of a block. Raises: KeyError: there is no such block; TypeError: the value is not text."""
        self.get_block(label).value = value

    def changes(self) -> dict[str, str]:
        """label -> new value, of the blocks that the tool changed."""
        return {label: block.value for label, block in self._blocks.items() if block.value != self._before[label]}

    def __iter__(self) -> Iterator[BlockState]:
        return iter(self.blocks)


class AgentState:
    """The agent: `id`, `name`, `memory`, `blocks`, and the other facts that the job has about it."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.__dict__.update({key: value for key, value in facts.items() if key.isidentifier()})
        self.memory = MemoryState(facts.get("blocks") or {})

    @property
    def blocks(self) -> list[BlockState]:
        return self.memory.blocks
