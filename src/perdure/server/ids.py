"""Ids in paths: what is not `<prefix>-<uuid4>` is refused before anything is looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from perdure.core.ids import (
    PREFIXES,
    AgentId,
    ArchiveId,
    BlockId,
    FileId,
    FolderId,
    McpServerId,
    MessageId,
    PassageId,
    RunId,
    StepId,
    ToolId,
    is_id,
)

__all__ = [
    "AgentPath",
    "ArchivePath",
    "BlockPath",
    "FilePath",
    "FolderPath",
    "McpServerPath",
    "MessagePath",
    "PassagePath",
    "RunPath",
    "StepPath",
    "ToolPath",
    "check_id",
    "path_id",
]


def check_id(kind: str) -> Callable[[str], str]:
    """A validator that lets an id of this kind (a key of `core.ids.PREFIXES`) through as it is."""
    pattern = f"{PREFIXES[kind]}-{{uuid4}}"

    def check(value: str) -> str:
        if not is_id(kind, value):
            raise PydanticCustomError(
                "string_pattern_mismatch", "String should match pattern '{pattern}'", {"pattern": pattern}
            )
        return value

    return check


def path_id(kind: str) -> Any:
    """The metadata that makes a path parameter an id of this kind: `Annotated[RunId, path_id("run"), Path()]`.

    Another text is answered with 422 and `String should match pattern 'run-{uuid4}'`.
    """
    return AfterValidator(check_id(kind))


_PATH: Final = Path()

AgentPath = Annotated[AgentId, path_id("agent"), _PATH]
ArchivePath = Annotated[ArchiveId, path_id("archive"), _PATH]
BlockPath = Annotated[BlockId, path_id("block"), _PATH]
FilePath = Annotated[FileId, path_id("file"), _PATH]
FolderPath = Annotated[FolderId, path_id("folder"), _PATH]
McpServerPath = Annotated[McpServerId, path_id("mcp_server"), _PATH]
MessagePath = Annotated[MessageId, path_id("message"), _PATH]
PassagePath = Annotated[PassageId, path_id("passage"), _PATH]
RunPath = Annotated[RunId, path_id("run"), _PATH]
StepPath = Annotated[StepId, path_id("step"), _PATH]
ToolPath = Annotated[ToolId, path_id("tool"), _PATH]
