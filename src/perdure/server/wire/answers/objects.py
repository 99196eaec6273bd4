"""The shapes of answers in the OpenAPI document: the fields that clients can rely on, and which can be null.

The other modules here build such shapes, and the tests compare every answer with these. Only the first request for the
document imports this module.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from perdure.core.runs import StopReason
from perdure.server.wire import fields as ids
from perdure.server.wire.answers.companions import Group as Group
from perdure.server.wire.answers.mcp import Definition as Definition
from perdure.server.wire.answers.mcp import McpConfig as McpConfig
from perdure.server.wire.answers.mcp import McpListing as McpListing
from perdure.server.wire.answers.mcp import McpServer as McpServer
from perdure.server.wire.answers.mcp import McpTool as McpTool
from perdure.server.wire.answers.mcp import Synced as Synced
from perdure.server.wire.answers.messages import Completion as Completion
from perdure.server.wire.answers.messages import Message as Message
from perdure.server.wire.answers.messages import Object as Object
from perdure.server.wire.answers.messages import RequestUsage, Stop
from perdure.server.wire.answers.messages import Usage as Usage


class _Stamped(TypedDict):
    created_by_id: str | None
    last_updated_by_id: str | None
    created_at: ids.Time | None
    updated_at: ids.Time | None


class Block(TypedDict):
    id: ids.BlockIdIn
    label: str | None
    value: str
    limit: int
    description: str | None
    read_only: bool
    metadata: Object
    tags: list[str]
    hidden: bool | None
    is_template: bool
    created_by_id: str | None
    last_updated_by_id: str | None


class Tool(TypedDict):
    id: ids.ToolIdIn
    name: str
    tool_type: str
    description: str | None
    source_type: str | None
    source_code: str | None
    json_schema: Object
    tags: list[str]
    return_char_limit: int
    pip_requirements: list[Object] | None
    npm_requirements: list[Object] | None
    default_requires_approval: bool | None
    enable_parallel_execution: bool | None
    metadata_: Object


class ToolHit(TypedDict):
    tool: Tool
    embedded_text: str | None
    fts_rank: int | None
    vector_rank: int | None
    combined_score: float


class ToolRun(TypedDict):
    status: Literal["success", "error"]
    func_return: Any
    agent_state: Agent | None
    stdout: list[str] | None
    stderr: list[str] | None


class ToolMessage(TypedDict):
    id: ids.MessageIdIn
    date: ids.Time
    message_type: Literal["tool_return_message"]
    tool_return: str
    status: Literal["success", "error"]
    stdout: list[str]
    stderr: list[str]


class JsonSchema(TypedDict):
    name: str
    description: str | None
    parameters: Object


class Folder(_Stamped):
    id: ids.FolderIdIn
    name: str
    description: str | None
    instructions: str | None
    metadata: Object | None
    embedding_config: Object


class FileSize(TypedDict):
    file_id: ids.FileIdIn
    file_name: str
    file_size: int


class FolderSize(TypedDict):
    source_id: ids.FolderIdIn
    source_name: str
    file_count: int
    total_size: int
    files: list[FileSize]


class FolderSizes(TypedDict):
    total_sources: int
    total_files: int
    total_size: int
    sources: list[FolderSize]


class File(_Stamped):
    id: ids.FileIdIn
    source_id: ids.FolderIdIn
    file_name: str | None
    original_file_name: str | None
    file_type: str | None
    file_size: int | None
    processing_status: Literal["pending", "parsing", "embedding", "completed", "error"]
    error_message: str | None
    progress: int
    total_chunks: int | None
    chunks_embedded: int | None
    warnings: list[str]
    content: str | None


class AgentFile(TypedDict):
    id: str
    file_id: ids.FileIdIn
    file_name: str
    folder_id: ids.FolderIdIn
    folder_name: str
    is_open: bool
    last_accessed_at: ids.Time | None
    visible_content: str | None
    start_line: int | None
    end_line: int | None


class AgentFiles(TypedDict):
    files: list[AgentFile]
    next_cursor: str | None
    has_more: bool


class Secret(TypedDict):
    agent_id: str
    key: str
    value: str


class Memory(TypedDict):
    agent_type: str
    blocks: list[Block]


class Agent(_Stamped):
    id: ids.AgentIdIn
    name: str
    agent_type: str
    system: str
    description: str | None
    model: str
    model_settings: Object
    llm_config: Object
    embedding: str | None
    embedding_config: Object | None
    response_format: Object | None
    metadata: Object
    memory: Memory
    blocks: list[Block]
    tools: list[Tool]
    tool_rules: list[Object]
    sources: list[Folder]
    tags: list[str]
    secrets: list[Secret]
    message_ids: list[ids.MessageIdIn]
    pending_approval: Object | None
    timezone: str
    last_run_completion: ids.Time | None
    last_run_duration_ms: int | None
    last_stop_reason: StopReason | None
    max_files_open: int | None
    per_file_view_window_char_limit: int | None
    hidden: bool | None
    managed_group: Group | None
    multi_agent_group: Group | None


class Archive(_Stamped):
    id: ids.ArchiveIdIn
    name: str
    description: str | None
    metadata: Object | None
    embedding: str | None
    embedding_config: Object | None
    passage_count: int


class Passage(_Stamped):
    id: ids.PassageIdIn
    text: str
    tags: list[str] | None
    metadata: Object
    archive_id: ids.ArchiveIdIn | None
    source_id: ids.FolderIdIn | None
    file_id: ids.FileIdIn | None
    file_name: str | None


class PassageHit(TypedDict):
    passage: Passage
    score: float
    metadata: Object


class FoundPassage(TypedDict):
    id: ids.PassageIdIn
    timestamp: ids.Time
    content: str
    tags: list[str]


class FoundPassages(TypedDict):
    results: list[FoundPassage]
    count: int


class FoundMessage(TypedDict):
    message_type: str
    message_id: ids.MessageIdIn
    content: str
    created_at: ids.Time
    agent_id: ids.AgentIdIn
    conversation_id: ids.ConversationIdIn | None
    name: str | None
    score: float


class Deleted(TypedDict):
    matched: int
    deleted: int
    dry_run: bool


class Reply(TypedDict):
    messages: list[Message]
    stop_reason: Stop
    usage: RequestUsage
    logprobs: Object | None
    turns: list[Object] | None


class Provider(TypedDict):
    id: ids.ProviderIdIn
    name: str
    provider_type: str
    provider_category: Literal["byok"]
    api_key: None
    base_url: str | None
    last_synced: ids.Time | None


class Generated(TypedDict):
    content: str
    model: str
    usage: RequestUsage


class ImportedAgents(TypedDict):
    agent_ids: list[ids.AgentIdIn]
    warnings: list[str]


class Imported(TypedDict):
    conversation_id: ids.ConversationIdIn
    imported: int
    skipped: int
    out_of_order: int
    reset: int
    hint: str | None


class Conversation(_Stamped):
    id: ids.ConversationIdIn
    agent_id: ids.AgentIdIn
    summary: str | None
    description: str | None
    in_context_message_ids: list[ids.MessageIdIn]
    model: str | None
    model_settings: Object | None
    context_window_limit: int | None
    last_message_at: ids.Time | None
    archived: bool
    archived_at: ids.Time | None


class Compaction(TypedDict):
    """The summary, and how many messages were in view before and after, with system message and summaries."""

    summary: str
    num_messages_before: int
    num_messages_after: int


class _Work(TypedDict):
    status: Literal["created", "running", "completed", "failed", "cancelled"]
    created_at: ids.Time
    completed_at: ids.Time | None
    background: bool | None
    metadata: Object
    stop_reason: StopReason | None
    total_duration_ns: int | None


class Run(_Work):
    id: ids.RunIdIn
    agent_id: ids.AgentIdIn
    conversation_id: ids.ConversationIdIn | None


class Job(_Work):
    id: ids.JobIdIn
    job_type: Literal["run", "batch"]
    agent_id: ids.AgentIdIn | None
    updated_at: ids.Time
    callback_url: str | None


class Step(Usage):
    id: ids.StepIdIn
    run_id: ids.RunIdIn
    agent_id: ids.AgentIdIn
    provider_name: str
    model: str
    model_handle: str
    status: Literal["pending", "success", "failed", "cancelled"]
    stop_reason: StopReason | None
    error_type: str | None
    error_data: Object | None
    feedback: Literal["positive", "negative"] | None
    tags: list[str]
    trace_id: str


class Property(TypedDict):
    key: str
    value: str | bool | float | Object
    type: Literal["string", "number", "boolean", "json"]


class Identity(TypedDict):
    id: ids.IdentityIdIn
    identifier_key: str
    name: str
    identity_type: Literal["org", "user", "other"]
    project_id: str | None
    agent_ids: list[ids.AgentIdIn]
    block_ids: list[ids.BlockIdIn]
    properties: list[Property]


class SandboxConfig(_Stamped):
    id: ids.SandboxIdIn
    type: Literal["local"]
    config: Object


class Variable(_Stamped):
    id: ids.VariableIdIn
    key: str
    value: str
    description: str | None
    sandbox_config_id: ids.SandboxIdIn


class RunMetrics(TypedDict):
    id: ids.RunIdIn
    agent_id: ids.AgentIdIn
    run_start_ns: int
    run_ns: int | None
    num_steps: int
    tools_used: list[ids.ToolIdIn]


class StepMetrics(TypedDict):
    id: ids.StepIdIn
    run_id: ids.RunIdIn
    agent_id: ids.AgentIdIn
    step_start_ns: int
    step_ns: int | None
    llm_request_start_ns: int
    llm_request_ns: int | None
    tool_execution_ns: int | None


class Span(TypedDict):
    trace_id: str
    span_id: str
    parent_span_id: str | None
    span_name: str
    start_time_unix_nano: int
    end_time_unix_nano: int | None
    duration_ns: int | None
    status_code: Literal["OK", "ERROR", "UNSET"]
    attributes: Object


class Trace(TypedDict):
    id: str
    step_id: ids.StepIdIn
    run_id: ids.RunIdIn
    agent_id: ids.AgentIdIn
    request_json: Object
    response_json: Object
    created_at: ids.Time


class Model(TypedDict):
    handle: str
    name: str
    display_name: str
    provider_type: str
    provider_name: str
    model_type: Literal["llm"]
    context_window: int
    max_context_window: int


class Context(TypedDict):
    """The tokens of the parts (`num_tokens_...`) and their texts; they sum to `context_window_size_current`."""

    context_window_size_max: int
    context_window_size_current: int
    num_messages: int
    num_archival_memory: int
    num_recall_memory: int
    system_prompt: str
    core_memory: str
    functions_definitions: list[Object] | None
    messages: list[Object]


class Recalled(TypedDict):
    text: str
    tokens: int
    budget_tokens: int
    sources: list[Object]
    left_out: int
    ran: Object


class Health(TypedDict):
    version: str
    status: str
    perdure: NotRequired[str]


class Confirmation(TypedDict):
    message: str
