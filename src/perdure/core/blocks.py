"""Core memory blocks: labelled text that is always in the context window.

A block may be shared by several agents. Values and pure functions only; storing them is `perdure.storage`'s work.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from perdure.core.errors import (
    BlockLimitExceeded,
    BlockProtected,
    BlockReadOnly,
    InvalidInput,
    LineNumbersInText,
    TextAmbiguous,
    TextNotFound,
)
from perdure.core.ids import AgentId, BlockId, IdentityId, MessageId, OrgId, RunId
from perdure.core.sources import TrustLabel, WriteSource, least_trusted
from perdure.core.text.forms import in_name_form, name_form
from perdure.core.text.line_diff import unified_diff
from perdure.core.text.markup import unescape_tags
from perdure.core.text.reprs import short_repr

DEFAULT_LIMIT_CHARS = 5_000

WORKING_CHECKPOINT = "working_checkpoint"
"""The label of a conversation's working notes, which stand at the end of each request, not in the memory section."""

ERROR_PATTERNS = "error_patterns"
"""The label of a block in which an agent keeps how its calls of tools fail."""

PROTECTED = "protected"
"""The name in the metadata of a block that marks it, with any value but false: only a person changes it."""

LABEL_PATTERN = r"[\w][\w./-]{0,99}"
_LABEL = re.compile(LABEL_PATTERN)
_LINE_NUMBER = re.compile(r"^[ \t]*(?:Line \d+: |\d+→)", re.M)
"""How a line begins that is shown with its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The author of an edit: an agent by its tools, a person or program from outside, or Perdure itself.

    `run_id` and `message_id` name the run and the message with the tool call, where there is one.

    Args:
        sources: what the edit may come from; empty: from the author alone. Histories read them; else they are empty.
    """

    kind: Literal["agent", "user", "system"]
    id: str
    agent_id: AgentId | None = None
    run_id: RunId | None = None
    message_id: MessageId | None = None
    sources: tuple[WriteSource, ...] = field(default=(), compare=False)

    @property
    def label(self) -> TrustLabel:
        """How far the edit is trusted."""
        if self.sources:
            return least_trusted(source.source.label for source in self.sources)
        return "user" if self.kind == "user" else "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("label", "tags")
class Block:
    """One block at one version; every change of any field makes the next version."""

    __repr__ = short_repr("id", "label", "value", "version")

    id: BlockId
    org_id: OrgId
    label: str
    value: str = ""
    limit_chars: int = DEFAULT_LIMIT_CHARS
    description: str | None = None
    read_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    is_template: bool = False
    hidden: bool = False
    version: int = 0
    created_at: datetime
    updated_at: datetime
    created_by: str | None = None
    updated_by: str | None = None

    @property
    def is_protected(self) -> bool:
        """Whether only a person changes it."""
        return bool(self.metadata.get(PROTECTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockVersion:
    """One version of a block. `diff` is unified, without file headers; empty when the value did not change.

    Histories also say the name of the agent that wrote it, `agent_name`, and the `reason` that it gave when it ended
    its edits; else both are empty.
    """

    __repr__ = short_repr("block_id", "label", "version", "value")

    block_id: BlockId
    version: int
    label: str
    value: str
    diff: str
    author: Author
    created_at: datetime
    agent_name: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class MemoryEdit:
    """A block after an edit; `deleted` when it is no longer the agent's."""

    block: Block
    diff: str
    deleted: bool = False

    @classmethod
    def between(cls, before: Block | None, after: Block | None) -> MemoryEdit:
        """Return the edit that leads from one block to the other; None stands for no block; at least one is given."""
        block = after or before
        assert block is not None
        return cls(
            block, unified_diff(before.value if before else "", after.value if after else ""), deleted=after is None
        )


def check_label(label: str) -> str:
    """Return `label` in the form of names after checking it. Raises: InvalidInput: unless it is 1 to 100 letters,
    digits, `_`, `.`, `/` or `-`, beginning with a letter or digit."""
    if not _LABEL.fullmatch(label := name_form(label)):
        raise InvalidInput(
            f"block label {label[:80]!r} can't be used: 1 to 100 letters, digits, _ . / and - without spaces"
        )
    return label


def check_limit(block: Block) -> Block:
    """Return `block` after checking the length of its value. Raises: BlockLimitExceeded."""
    if len(block.value) > block.limit_chars:
        raise BlockLimitExceeded(block.label, size=len(block.value), limit=block.limit_chars)
    return block


def check_author(block: Block, author: Author) -> None:
    """Check that this author may change a block. Raises: BlockProtected: it is protected, and no person changes it."""
    if block.is_protected and author.kind != "user":
        raise BlockProtected(block.label)


def rewrite(block: Block, value: str) -> Block:
    """Return the block with another value, by an agent's tool. Raises: BlockReadOnly, BlockLimitExceeded."""
    if block.read_only:
        raise BlockReadOnly(block.label)
    return check_limit(replace(block, value=value))


def check_no_line_numbers(block: Block, **texts: str) -> Block:
    """Return the block after checking `texts`, name of an argument -> text that a tool would write into the block.
    Raises: LineNumbersInText: one has line numbers, with which blocks are only shown, and the block itself has none."""
    for name, text in texts.items():
        if _LINE_NUMBER.search(text) and not _LINE_NUMBER.search(block.value):
            raise LineNumbersInText(name)
    return block


def append_text(block: Block, text: str) -> Block:
    """Return the block with `text` on a new last line; an empty block becomes `text`."""
    return rewrite(block, f"{block.value}\n{text}" if block.value else text)


def replace_text(block: Block, old: str, new: str) -> Block:
    """Return the block with its one occurrence of `old` replaced. Raises: TextNotFound, TextAmbiguous; as `rewrite`."""
    if block.read_only:
        raise BlockReadOnly(block.label)
    return rewrite(block, replace_in(block.value, old, new, label=block.label))


def replace_in(value: str, old: str, new: str, *, label: str) -> str:
    """Return the block's value with its only occurrence of `old` replaced. Raises: TextNotFound, TextAmbiguous."""
    # An empty `old` stands between any two characters; it is unique only in an empty block.
    if not old and not value:
        return new
    starts = _find_all(value, old)
    if not starts and (plain := unescape_tags(old, (label,))) != old:  # as the prompt shows it
        old, new = plain, unescape_tags(new, (label,))
        starts = _find_all(value, old)
    if not starts and "\r\n" in value:  # a person wrote the block on Windows; models write \n, and add lines
        value, old, new = (re.sub("\r?\n", "\r\n", text) for text in (value, old, new))
        starts = _find_all(value, old)
    if not starts and not value.isascii():  # macOS writes a letter and its mark apart, models in one
        value, old, new = (unicodedata.normalize("NFC", text) for text in (value, old, new))
        starts = _find_all(value, old)
    if not starts:
        raise TextNotFound(label, old)
    if len(starts) > 1:
        raise TextAmbiguous(label, old, lines=[value.count("\n", 0, start) + 1 for start in starts])
    start = starts[0]
    return value[:start] + new + value[start + len(old) :]


def _find_all(value: str, text: str) -> list[int]:
    """Return the indexes at which `text` begins in `value`, ascending, also of occurrences that overlap."""
    return [match.start() for match in re.finditer(f"(?={re.escape(text)})", value)] if text else []


def insert_lines(block: Block, text: str, *, line: int = -1) -> Block:
    """Return the block with `text` after its line `line`, counted from 1: 0 is the beginning, -1 and a line that it
    does not have are the end. Raises: as `rewrite`."""
    lines = block.value.split("\n") if block.value else []
    position = line if 0 <= line <= len(lines) else len(lines)
    return rewrite(block, "\n".join([*lines[:position], text, *lines[position:]]))


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("label", "label_text", "tags", "identifier_keys")
class BlockFilter:
    """Selects blocks, for which all conditions must hold; None and empty ask for nothing.

    `label` is the whole label; `label_text`, `value_text` and `description_text` are parts, in any case. `all_tags`:
    every tag is needed, not only one of them. `agents_min` and `agents_max` are how many agents have it, both ends
    included; `agents_in` lists the numbers of agents that are allowed. `agent_id`: blocks that this agent has.
    `identity_id` and `identifier_keys`: of this identity, of an identity with one of these keys. `holding`: what their
    metadata hold, each as (name of an object in them, name in that object, value).
    """

    label: str | None = None
    label_text: str | None = None
    value_text: str | None = None
    description_text: str | None = None
    tags: tuple[str, ...] = ()
    all_tags: bool = False
    templates_only: bool = False
    agents_min: int | None = None
    agents_max: int | None = None
    agents_in: tuple[int, ...] = ()
    agent_id: AgentId | None = None
    identity_id: IdentityId | None = None
    identifier_keys: tuple[str, ...] = ()
    holding: tuple[tuple[str, str, str], ...] = ()
    hidden: bool | None = None
