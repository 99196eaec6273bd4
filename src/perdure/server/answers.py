"""The successful answer of each operation, for the OpenAPI document.

Only the first request for the document imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from perdure.server.wire.answers import (
    Agent,
    AgentFiles,
    AgentId,
    Archive,
    Block,
    Confirmation,
    Context,
    Conversation,
    Definition,
    Deleted,
    File,
    Folder,
    FoundMessage,
    FoundPassages,
    Health,
    Imported,
    JsonSchema,
    McpConfig,
    McpListing,
    McpServer,
    McpTool,
    Memory,
    Message,
    Model,
    Object,
    Passage,
    PassageHit,
    Recalled,
    Reply,
    Run,
    Secret,
    Step,
    Synced,
    Tool,
    ToolHit,
    ToolMessage,
    ToolRun,
    Trace,
    Usage,
)

__all__ = ["answer_shape"]

_RULES: Sequence[tuple[str, Any]] = [
    (r"GET /v1/(health|ready)/", Health),
    (r"GET /v1/(agents|blocks|folders|tools)/count", int),
    (r"PATCH /v1/agents/{agent_id}/(core-memory/blocks|tools|folders)/(at|de)tach/.*", Agent),
    (r"PATCH /v1/agents/{agent_id}/(reset-messages|tools/approval/{tool_name})", Agent),
    (r"GET /v1/(agents/|blocks/{block_id}/agents)", list[Agent]),
    (r"POST /v1/agents/|(GET|PATCH) /v1/agents/{agent_id}", Agent),
    (r"DELETE /v1/agents/{agent_id}(/archival-memory/{memory_id})?", Confirmation),
    (r"GET /v1/agents/{agent_id}/core-memory", Memory),
    (r"GET /v1/agents/{agent_id}/context", Context),
    (r"GET /v1/agents/{agent_id}/secrets", list[Secret]),
    (r"GET /v1/agents/{agent_id}/files", AgentFiles),
    (r"PATCH /v1/agents/{agent_id}/files/(close-all|{file_id}/open)", list[str]),
    (r"GET /v1/(agents/{agent_id}/core-memory/blocks|blocks/)", list[Block]),
    (r"(GET|PATCH) /v1/agents/{agent_id}/core-memory/blocks/{block_label}", Block),
    (r"POST /v1/blocks/|(GET|PATCH) /v1/blocks/{block_id}", Block),
    (r"(GET|POST) /v1/agents/{agent_id}/archival-memory", list[Passage]),
    (r"PATCH /v1/agents/{agent_id}/archival-memory/{memory_id}", list[Passage]),
    (r"GET /v1/agents/{agent_id}/archival-memory/search", FoundPassages),
    (r"GET /v1/archives/", list[Archive]),
    (r"POST /v1/archives/|(GET|PATCH) /v1/archives/{archive_id}", Archive),
    (r"GET /v1/(archives/{archive_id}|folders/{folder_id})/passages", list[Passage]),
    (r"POST /v1/archives/{archive_id}/passages/batch", list[Passage]),
    (r"POST /v1/archives/{archive_id}/passages/delete", Deleted),
    (r"POST /v1/archives/{archive_id}/passages|PATCH /v1/archives/{archive_id}/passages/{passage_id}", Passage),
    (r"POST /v1/passages/search", list[PassageHit]),
    (r"POST /v1/messages/search", list[FoundMessage]),
    (r"POST /v1/(agents/{agent_id}/)?recall", Recalled),
    (r"GET /v1/(folders/|agents/{agent_id}/folders)", list[Folder]),
    (r"POST /v1/folders/|(GET|PATCH) /v1/folders/{folder_id}", Folder),
    (r"GET /v1/folders/{folder_id}/agents", list[AgentId]),
    (r"GET /v1/folders/{folder_id}/files", list[File]),
    (r"GET /v1/folders/{folder_id}/files/{file_id}|POST /v1/folders/{folder_id}/upload", File),
    (r"POST /v1/(agents|conversations)/{\w+}/messages", Reply),
    (r"POST /v1/agents/{agent_id}/messages/async|POST /v1/runs/{run_id}/cancel|GET /v1/runs/{run_id}", Run),
    (r"POST /v1/agents/{agent_id}/messages/import", Imported),
    (r"POST /v1/(agents/{agent_id}/messages|conversations/{conversation_id})/cancel", dict[str, str]),
    (r"GET /v1/((agents|conversations|runs)/{\w+}/messages|messages/{message_id})", list[Message]),
    (r"GET /v1/conversations/", list[Conversation]),
    (r"POST /v1/conversations/|(GET|PATCH) /v1/conversations/{conversation_id}", Conversation),
    (r"GET /v1/runs/", list[Run]),
    (r"GET /v1/runs/{run_id}/steps", list[Step]),
    (r"GET /v1/runs/{run_id}/usage", Usage),
    (r"GET /v1/steps/{step_id}", Step),
    (r"GET /v1/steps/{step_id}/trace", Trace),
    (r"GET /v1/(tools/|agents/{agent_id}/tools|mcp-servers/{mcp_server_id}/tools)", list[Tool]),
    (r"POST /v1/tools/add-base-tools", list[Tool]),
    (r"(POST|PUT) /v1/tools/|(GET|PATCH) /v1/tools/{tool_id}", Tool),
    (r"GET /v1/mcp-servers/{mcp_server_id}/tools/{tool_id}", Tool),
    (r"POST /v1/tools/mcp/servers/{mcp_server_name}/{mcp_tool_name}", Tool),
    (r"POST /v1/tools/search", list[ToolHit]),
    (r"POST /v1/tools/generate-schema", JsonSchema),
    (r"POST /v1/agents/{agent_id}/tools/{tool_name}/run", ToolRun),
    (r"POST /v1/mcp-servers/{mcp_server_id}/tools/{tool_id}/run", ToolRun),
    (r"POST /v1/tools/mcp/servers/{mcp_server_name}/tools/{mcp_tool_name}/execute", ToolRun),
    (r"GET /v1/mcp-servers/", list[McpServer]),
    (r"POST /v1/mcp-servers/|(GET|PATCH) /v1/mcp-servers/{mcp_server_id}", McpServer),
    (r"GET /v1/models/", list[Model]),
    (r"GET /v1/models/embedding", list[Object]),
    (r"POST /v1/tools/run", ToolMessage),
    (r"GET /v1/mcp-servers/{mcp_server_id}/definitions", list[Definition]),
    (r"POST /v1/mcp-servers/{mcp_server_id}/approve|PATCH /v1/mcp-servers/{mcp_server_id}/refresh", Synced),
    (r"POST /v1/tools/mcp/servers/{mcp_server_name}/resync", Synced),
    (r"GET /v1/tools/mcp/servers", dict[str, McpConfig]),
    (r"PUT /v1/tools/mcp/servers|DELETE /v1/tools/mcp/servers/{mcp_server_name}", list[McpConfig]),
    (r"PATCH /v1/tools/mcp/servers/{mcp_server_name}", McpConfig),
    (r"GET /v1/tools/mcp/servers/{mcp_server_name}/tools", list[McpTool]),
    (r"POST /v1/tools/mcp/servers/test", McpListing),
    (r"DELETE /v1/(blocks/{block_id}|folders/{folder_id}|tools/{tool_id}|conversations/{conversation_id})", None),
    (r"PATCH /v1/agents/{agent_id}/(files/{file_id}/close|archives/(at|de)tach/{archive_id})", None),
]
"""Pattern of `METHOD /path` -> the answer's type. The first match counts; None is null."""


def answer_shape(name: str) -> Any:
    """The type of the answer of the operation `METHOD /path`. Raises: KeyError: no rule matches."""
    for pattern, kind in _RULES:
        if re.fullmatch(pattern, name):
            return kind
    raise KeyError(name)
