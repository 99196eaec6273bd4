"""Identifiers: a prefix that names the kind, and a uuid4, as the wire wants them.

Order never comes from an id; it comes from the sequence number beside it.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import NewType, Protocol

OrgId = NewType("OrgId", str)
AgentId = NewType("AgentId", str)
BlockId = NewType("BlockId", str)
ArchiveId = NewType("ArchiveId", str)
PassageId = NewType("PassageId", str)
FolderId = NewType("FolderId", str)
FileId = NewType("FileId", str)
ConversationId = NewType("ConversationId", str)
MessageId = NewType("MessageId", str)
RunId = NewType("RunId", str)
StepId = NewType("StepId", str)
ToolId = NewType("ToolId", str)
McpServerId = NewType("McpServerId", str)

PREFIXES = {
    "org": "org",
    "user": "user",
    "agent": "agent",
    "block": "block",
    "archive": "archive",
    "passage": "passage",
    "folder": "source",
    "file": "file",
    "conversation": "conv",
    "message": "message",
    "run": "run",
    "step": "step",
    "tool": "tool",
    "mcp_server": "mcp_server",
}
"""Kind -> prefix. The prefixes are the wire's."""

DEFAULT_ORG = OrgId("org-00000000-0000-4000-8000-000000000000")
DEFAULT_USER = "user-00000000-0000-4000-8000-000000000000"

_UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_ID = {kind: re.compile(f"{prefix}-{_UUID4}") for kind, prefix in PREFIXES.items()}

ID_PATTERNS = {kind: f"^{pattern.pattern}$" for kind, pattern in _ID.items()}
"""Kind -> the regular expression of its ids, as JSON Schema writes it."""


class Ids(Protocol):
    """A source of fresh ids."""

    def new(self, kind: str) -> str:
        """Return a fresh id of a kind named in `PREFIXES`.

        A run's id should end in three zeros: then the ids of its messages and steps lead to it (`input_id`), and the
        directory need not store them.
        """
        ...


def derived_id(kind: str, *facts: str) -> str:
    """Return the id derived from these facts: equal facts always give the same id."""
    data = json.dumps(facts).encode()  # escapes what has no UTF-8, and keeps facts apart
    digest = bytearray(hashlib.sha256(data).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40  # version 4
    digest[8] = digest[8] & 0x3F | 0x80  # the variant that has versions
    return f"{PREFIXES[kind]}-{uuid.UUID(bytes=bytes(digest))}"


# A run's id ends in three zeros: room for the numbers of its messages and steps, so that their ids lead to the run and
# the directory of ids stores the run only.
_ROOM = 3
_INPUTS, _STEPS = range(0x001, 0x800), range(0x800, 0x1000)


def input_id(run_id: RunId, index: int, ids: Ids) -> MessageId:
    """Return the id of a run's input message by its place, from 0."""
    return MessageId(_within(run_id, "message", _INPUTS, index) or ids.new("message"))


def step_id(run_id: RunId, index: int, ids: Ids) -> StepId:
    """Return the id of the run's step with this index."""
    return StepId(_within(run_id, "step", _STEPS, index) or ids.new("step"))


def answer_id(run_id: RunId, index: int, ids: Ids) -> MessageId:
    """Return the id of the model's message in the run's step with this index."""
    return MessageId(_within(run_id, "message", _STEPS, index) or ids.new("message"))


def _within(run_id: RunId, kind: str, numbers: range, index: int) -> str | None:
    """Return an id that leads to the run; None: the run's id has no room for the number."""
    if not run_id.endswith("000") or index >= len(numbers):
        return None
    number = numbers[index]
    return f"{PREFIXES[kind]}-{_offset_id(run_id, number)}{run_id[-33:-_ROOM]}{number:03x}"


def _offset_id(id_: str, number: int) -> str:
    """Return the first digits, changed by the number or back: people compare the beginnings of ids."""
    return f"{int(id_[-36:-33], 16) ^ number * 0x9E5 & 0xFFF:03x}"


def run_of(id_: str) -> RunId | None:
    """Return the run that an id leads to, if it is one of a run's ids; None: it can't be."""
    try:
        return RunId(f"{PREFIXES['run']}-{_offset_id(id_, int(id_[-_ROOM:], 16))}{id_[-33:-_ROOM]}000")
    except ValueError:  # it is no id
        return None


def is_of_run(run_id: RunId, id_: str) -> bool:
    """Return whether an id leads to this run: it comes from `input_id`, `step_id` or `answer_id`."""
    return id_[-33:-_ROOM] == run_id[-33:-_ROOM] and run_of(id_) == run_id


def is_id(kind: str, text: str) -> bool:
    """Return whether `text` has the form of an id of this kind."""
    return _ID[kind].fullmatch(text) is not None
