"""Ids in paths. A text that is not `<prefix>-<uuid4>` is refused before any lookup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from perdure.core.ids import (
    ID_PATTERNS,
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


@dataclass(frozen=True, slots=True)
class IdFormat:
    """The metadata that makes a text an id: `Annotated[RunId, IdFormat("run")]`.

    Another text is answered with 422 and `String should match pattern 'run-{uuid4}'`.

    Args:
        kind: a key of `core.ids.PREFIXES`.
        words: texts that are accepted besides ids.
    """

    kind: str
    words: tuple[str, ...] = ()

    def check(self, value: str) -> str:
        """Return `value`. Raises: PydanticCustomError: it is not such an id."""
        if value not in self.words and not is_id(self.kind, value):
            pattern = f"{PREFIXES[self.kind]}-{{uuid4}}"
            raise PydanticCustomError(
                "string_pattern_mismatch", "String should match pattern '{pattern}'", {"pattern": pattern}
            )
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        shape = handler(schema) | {"pattern": ID_PATTERNS[self.kind]}
        return {"anyOf": [shape, {"const": self.words[0]}]} if len(self.words) == 1 else shape


_PATH: Final = Path()

AgentPath = Annotated[AgentId, IdFormat("agent"), _PATH]
ArchivePath = Annotated[ArchiveId, IdFormat("archive"), _PATH]
BlockPath = Annotated[BlockId, IdFormat("block"), _PATH]
ConversationPath = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": f"{ID_PATTERNS['conversation']}|{ID_PATTERNS['agent']}|^default$"}),
    _PATH,
]
"""A conversation's id; `default`, which is some agent's first one; or the agent's id, which means that too."""

FilePath = Annotated[FileId, IdFormat("file"), _PATH]
FolderPath = Annotated[FolderId, IdFormat("folder"), _PATH]
McpServerPath = Annotated[McpServerId, IdFormat("mcp_server"), _PATH]
MessagePath = Annotated[MessageId, IdFormat("message"), _PATH]
PassagePath = Annotated[PassageId, IdFormat("passage"), _PATH]
RunPath = Annotated[RunId, IdFormat("run"), _PATH]
StepPath = Annotated[StepId, IdFormat("step"), _PATH]
ToolPath = Annotated[ToolId, IdFormat("tool"), _PATH]
