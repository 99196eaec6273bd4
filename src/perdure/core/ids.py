"""Identifiers: a prefix that names the kind, and a uuid4, as the wire wants them.

Order never comes from an id; it comes from the sequence number beside it.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import NewType

__all__ = [
    "DEFAULT_ORG",
    "DEFAULT_USER",
    "PREFIXES",
    "AgentId",
    "ArchiveId",
    "BlockId",
    "ConversationId",
    "FileId",
    "FolderId",
    "McpServerId",
    "MessageId",
    "OrgId",
    "PassageId",
    "RunId",
    "StepId",
    "ToolId",
    "derived_id",
    "is_id",
]

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


def derived_id(kind: str, *facts: str) -> str:
    """The id that stands for these facts: the same ones always give the same id, in the form of any other."""
    told = json.dumps(facts).encode()  # escapes what has no UTF-8, and keeps facts apart
    digest = bytearray(hashlib.sha256(told).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40  # version 4
    digest[8] = digest[8] & 0x3F | 0x80  # the variant that has versions
    return f"{PREFIXES[kind]}-{uuid.UUID(bytes=bytes(digest))}"


def is_id(kind: str, text: str) -> bool:
    """Whether `text` has the form of an id of this kind; it says nothing about existence."""
    return _ID[kind].fullmatch(text) is not None
