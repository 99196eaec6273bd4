"""Identifiers: a prefix that names the kind, and a uuid4, as the wire wants them.

Order never comes from an id; it comes from the sequence number beside it.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import Literal, NewType, Protocol

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
BatchId = NewType("BatchId", str)
StepId = NewType("StepId", str)
ToolId = NewType("ToolId", str)
McpServerId = NewType("McpServerId", str)
IdentityId = NewType("IdentityId", str)
SandboxId = NewType("SandboxId", str)
VariableId = NewType("VariableId", str)
ProviderId = NewType("ProviderId", str)
GraphId = NewType("GraphId", str)
EntityId = NewType("EntityId", str)
FactId = NewType("FactId", str)
EpisodeId = NewType("EpisodeId", str)
GroupId = NewType("GroupId", str)
ScheduleId = NewType("ScheduleId", str)
UserId = NewType("UserId", str)
KeyId = NewType("KeyId", str)

PREFIXES = {
    **{kind: kind for kind in ("org", "user", "agent", "block", "archive", "passage", "file", "message", "run", "job")},
    **{"folder": "source", "conversation": "conv", "step": "step", "tool": "tool", "mcp_server": "mcp_server"},
    **{"identity": "identity", "sandbox": "sandbox", "variable": "sandbox-env", "provider": "provider"},
    **{kind: kind for kind in ("graph", "entity", "fact", "episode", "group", "schedule", "key")},
}
"""Kind -> prefix. The prefixes are the wire's, where it has the kind."""

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

        A run's id should end in three zeros: then the ids of its messages and steps lead to it (`id_in_run`), and the
        directory need not store them.
        """


class Uuids:
    """`Ids` by uuid4."""

    def new(self, kind: str) -> str:
        text = str(uuid.uuid4())
        if kind == "run":
            text = f"{text[:-3]}000"  # the ids of a run's messages differ from the run's in these digits
        return f"{PREFIXES[kind]}-{text}"


def derived_id(kind: str, *facts: str) -> str:
    """Return the id derived from these facts: equal facts always give the same id."""
    data = json.dumps(facts).encode()  # escapes what has no UTF-8, and keeps facts apart
    digest = bytearray(hashlib.sha256(data).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40  # version 4
    digest[8] = digest[8] & 0x3F | 0x80  # the variant that has versions
    return f"{PREFIXES[kind]}-{uuid.UUID(bytes=bytes(digest))}"


# A run's id ends in three zeros: room for the numbers of its messages and steps, so that their ids lead to the run and
# the directory of ids stores the run only. The number also changes the first three digits, which people compare.
_WITHIN_RUN = {
    "input": ("message", range(0x001, 0x800)),
    "step": ("step", range(0x800, 0x1000)),
    "answer": ("message", range(0x800, 0x1000)),
}
_MIX = 0x9E5


def id_in_run(run_id: RunId, part: Literal["input", "step", "answer"], index: int, ids: Ids) -> str:
    """Return the id of one of a run's own rows: of an input message by its index, or of a step or its answer by the
    step's index. It contains the run's id, or is a fresh one if that leaves no room."""
    kind, numbers = _WITHIN_RUN[part]
    if not run_id.endswith("000") or index >= len(numbers):
        return ids.new(kind)
    number = numbers[index]
    digits = int(run_id[-36:-33], 16) ^ number * _MIX & 0xFFF
    return f"{PREFIXES[kind]}-{digits:03x}{run_id[-33:-3]}{number:03x}"


def derived_run_id(*facts: str) -> RunId:
    """Return the run's id derived from these facts, to which the ids of its messages and steps lead."""
    return RunId(f"{derived_id('run', *facts)[:-3]}000")


def id_in_other_run(id_: str, run_id: RunId) -> str:
    """Return the id that a message or step, whose own id leads to a run, has as the same part of the run `run_id`."""
    kind, number = id_[:-36], int(id_[-3:], 16)
    return f"{kind}{int(run_id[-36:-33], 16) ^ number * _MIX & 0xFFF:03x}{run_id[-33:-3]}{number:03x}"


def run_of(id_: str) -> RunId | None:
    """Return the run's id inside the id of a message or step, unchecked; None: `id_` is of another form.

    Whether the run exists is another question: any id of the right form gives one.
    """
    try:
        digits = int(id_[-36:-33], 16) ^ int(id_[-3:], 16) * _MIX & 0xFFF
    except ValueError:  # it is no id
        return None
    return RunId(f"{PREFIXES['run']}-{digits:03x}{id_[-33:-3]}000")


def id_beginning(start: str, run_id: RunId) -> str:
    """Return the only id of a message or step of this run that could begin with `start`, of which the kind and at least
    three digits are needed. Whether the run has such a message or step is another question."""
    kind, _, digits = start.partition("-")
    number = (int(digits[:3], 16) ^ int(run_id[-36:-33], 16)) * pow(_MIX, -1, 0x1000) & 0xFFF
    return f"{kind}-{digits[:3]}{run_id[-33:-3]}{number:03x}"


def is_id(kind: str, text: str) -> bool:
    """Return whether `text` has the form of an id of this kind."""
    return _ID[kind].fullmatch(text) is not None
