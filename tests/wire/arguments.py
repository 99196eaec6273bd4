"""What each operation of `letta_client` is called with: one entry per operation, more have a word behind its name.

An entry returns the arguments; those that are awaitable are awaited. An operation without an entry fails
`test_operations`, and so does one of `MISSING` that the server answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tests.wire.world import CLIENT_TOOL, MODEL, World

MISSING: frozenset[str] = frozenset()
"""Operations that the server does not answer yet."""

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
HELLO = [{"role": "user", "content": "hello"}]
PICTURE = [{"role": "user", "content": [{"type": "text", "text": "what is this"}, IMAGE]}]
ONCE = {"scheduled_at": 4_000_000_000_000.0, "type": "one-time"}
MONDAYS = {"cron_expression": "0 9 * * MON", "type": "recurring"}
REMEMBER = [{"role": "user", "content": "remember tea"}]
FULL_AGENT: Mapping[str, Any] = {
    "name": "Ann's agent",
    "model": MODEL,
    "memory_blocks": [{"label": "human", "value": "Name: Ann.", "description": "Who I talk to.", "read_only": True}],
    "tags": ["wire", "test"],
    "secrets": {"TOKEN": "x"},
    "tool_rules": [
        {"type": "requires_approval", "tool_name": "core_memory_append"},
        {"type": "max_count_per_step", "tool_name": "conversation_search", "max_count_limit": 3},
        {"type": "exit_loop", "tool_name": "archival_memory_insert"},
    ],
    "tools": ["core_memory_append", "conversation_search", "archival_memory_insert"],
    "model_settings": {"provider_type": "openai", "temperature": 0.5, "max_output_tokens": 1000},
    "response_format": {"type": "json_object"},
    "timezone": "Europe/Oslo",
    "metadata": {"team": "a"},
    "max_files_open": 3,
    "hidden": False,
}


def _of(place: str, *names: str, **further: Any) -> Callable[[World], Any]:
    """The entry of arguments that a method of the world returns, or some of them; `further` are the others."""

    async def arguments(world: World) -> dict[str, Any]:
        values = await getattr(world, place)()
        return {name: values[name] for name in names or values} | further

    return arguments


TABLE: Mapping[str, Callable[[World], Any]] = {
    "health": lambda w: {},
    # --- agents
    "agents.create": lambda w: {"model": MODEL},
    "agents.create full": lambda w: {**FULL_AGENT, "block_ids": [], "embedding": "openai/text-embedding-3-small"},
    "agents.retrieve": _of("talk", "agent_id"),
    "agents.retrieve waiting": lambda w: {"agent_id": w.waiting(), "include": ["agent.pending_approval"]},
    "agents.update": lambda w: {"agent_id": w.agent(), "description": "New.", "tags": ["b"], "secrets": {"A": "1"}},
    "agents.list": lambda w: {"limit": 20, "order": "asc", "include": ["agent.tools", "agent.blocks"]},
    "agents.delete": lambda w: {"agent_id": w.agent()},
    "agents.export_file": lambda w: {"agent_id": w.agent()},
    "agents.import_file": lambda w: {"file": ("agent.af", b'{"agents": [{"name": "Ann"}]}')},
    "agents.recompile": lambda w: {"agent_id": w.agent(), "dry_run": True},
    # --- an agent's messages
    "agents.messages.create": lambda w: {"agent_id": w.agent(), "messages": HELLO},
    "agents.messages.create calls": lambda w: {"agent_id": w.agent(), "input": "remember tea"},
    "agents.messages.create approval": _of("approval"),
    "agents.messages.create client_tool": lambda w: {
        "agent_id": w.agent(),
        "input": "bash",
        "client_tools": [CLIENT_TOOL],
    },
    "agents.messages.create image": lambda w: {"agent_id": w.agent(), "input": [{"type": "text", "text": "hi"}, IMAGE]},
    "agents.messages.create options": lambda w: {
        "agent_id": w.agent(),
        "messages": [{"role": "developer", "content": "hello"}],
        "extra_body": {
            "override_model": MODEL,
            "override_system": "You are a parrot.",
            "return_logprobs": True,
            "return_token_ids": True,
        },
    },
    "agents.messages.create streaming": lambda w: {"agent_id": w.agent(), "messages": REMEMBER, "streaming": True},
    "agents.messages.list": _of("talk", "agent_id"),
    "agents.messages.list asc": _of("talk", "agent_id", order="asc", limit=3),
    "agents.messages.cancel": _of("busy", "agent_id"),
    "agents.messages.compact": _of("talk", "agent_id"),
    "agents.messages.create_async": lambda w: {"agent_id": w.agent(), "messages": HELLO},
    "agents.messages.reset": lambda w: {"agent_id": w.agent(), "add_default_initial_messages": True},
    "agents.messages.stream": lambda w: {"agent_id": w.agent(), "messages": REMEMBER},
    "agents.messages.stream tokens": lambda w: {"agent_id": w.agent(), "messages": REMEMBER, "stream_tokens": True},
    "agents.messages.stream waiting": _of("approval", stream_tokens=True),
    # --- what an agent has
    "agents.blocks.retrieve": _of("talk", "agent_id", block_label="human"),
    "agents.blocks.update": lambda w: {"agent_id": w.agent(), "block_label": "human", "value": "Name: Anne."},
    "agents.blocks.list": _of("talk", "agent_id"),
    "agents.blocks.attach": lambda w: {"agent_id": w.agent(), "block_id": w.block()},
    "agents.blocks.detach": _of("shared_block"),
    "agents.tools.list": _of("talk", "agent_id"),
    "agents.tools.attach": lambda w: {"agent_id": w.agent(), "tool_id": w.tool()},
    "agents.tools.detach": _of("armed", "agent_id", "tool_id"),
    "agents.tools.run": _of("armed", "agent_id", "tool_name", args={"value": 2}),
    "agents.tools.update_approval": _of("armed", "agent_id", "tool_name", body_requires_approval=True),
    "agents.passages.create": lambda w: {"agent_id": w.agent(), "text": "The moon is white.", "tags": ["moon"]},
    "agents.passages.list": _of("memory", "agent_id"),
    "agents.passages.delete": _of("memory"),
    "agents.passages.search": _of("memory", "agent_id", query="volcanoes"),
    "agents.archives.attach": lambda w: {"agent_id": w.agent(), "archive_id": w.archive()},
    "agents.archives.detach": _of("attached_archive"),
    "agents.files.list": _of("folder", "agent_id"),
    "agents.files.open": _of("folder", "agent_id", "file_id"),
    "agents.files.close": _of("folder", "agent_id", "file_id"),
    "agents.files.close_all": _of("folder", "agent_id"),
    "agents.folders.list": _of("folder", "agent_id"),
    "agents.folders.attach": lambda w: {"agent_id": w.agent(), "folder_id": w.new_folder()},
    "agents.folders.detach": _of("folder", "agent_id", "folder_id"),
    "agents.identities.attach": lambda w: {"agent_id": w.agent(), "identity_id": w.identity()},
    "agents.identities.detach": _of("attached_identity"),
    "agents.schedule.create": lambda w: {"agent_id": w.agent(), "messages": HELLO, "schedule": ONCE, "max_steps": 3},
    "agents.schedule.create cron": lambda w: {"agent_id": w.agent(), "messages": PICTURE, "schedule": MONDAYS},
    "agents.schedule.retrieve": _of("schedule"),
    "agents.schedule.list": _of("schedule", "agent_id"),
    "agents.schedule.delete": _of("schedule"),
    # --- conversations
    "conversations.create": lambda w: {"agent_id": w.agent(), "summary": "on boats"},
    "conversations.retrieve": _of("talk", "conversation_id"),
    "conversations.update": lambda w: {"conversation_id": w.conversation(), "summary": "on ships"},
    "conversations.list": _of("talk", "agent_id"),
    "conversations.delete": lambda w: {"conversation_id": w.conversation()},
    "conversations.cancel": _of("busy", "conversation_id"),
    "conversations.fork": lambda w: {"conversation_id": w.conversation()},
    "conversations.recompile": lambda w: {"conversation_id": w.conversation(), "dry_run": True},
    "conversations.messages.create": lambda w: {"conversation_id": w.conversation(), "messages": REMEMBER},
    "conversations.messages.create tokens": lambda w: {
        "conversation_id": w.conversation(),
        "messages": REMEMBER,
        "stream_tokens": True,
        "background": True,
    },
    "conversations.messages.create default": lambda w: {
        "conversation_id": "default",
        "agent_id": w.agent(),
        "messages": HELLO,
    },
    "conversations.messages.list": _of("talk", "conversation_id"),
    "conversations.messages.compact": lambda w: {"conversation_id": w.conversation()},
    "conversations.messages.stream": _of("streamed", "conversation_id", "extra_body", starting_after=0),
    # --- runs and steps
    "runs.retrieve": _of("talk", "run_id"),
    "runs.list": _of("talk", "agent_id"),
    "runs.messages.list": _of("talk", "run_id"),
    "runs.messages.stream": _of("streamed", "path_run_id", "run_id", starting_after=0),
    "runs.steps.list": _of("talk", "run_id"),
    "runs.trace.retrieve": _of("talk", "run_id"),
    "runs.usage.retrieve": _of("talk", "run_id"),
    "steps.retrieve": _of("talk", "step_id"),
    "steps.list": _of("talk", "agent_id"),
    "steps.feedback.create": _of("talk", "step_id", feedback="positive", tags=["good"]),
    "steps.messages.list": _of("talk", "step_id"),
    "steps.metrics.retrieve": _of("talk", "step_id"),
    "steps.trace.retrieve": _of("talk", "step_id"),
    # --- blocks, tools, archives, passages, messages
    "blocks.create": lambda w: {"label": "notes", "value": "Likes Go.", "description": "Notes.", "tags": ["a"]},
    "blocks.retrieve": lambda w: {"block_id": w.block()},
    "blocks.update": lambda w: {"block_id": w.block(), "value": "Likes tea.", "limit": 500},
    "blocks.list": lambda w: {"label": "notes", "limit": 5},
    "blocks.delete": lambda w: {"block_id": w.block()},
    "blocks.agents.list": _of("shared_block", "block_id"),
    "tools.create": lambda w: {"source_code": w.source(), "tags": ["a"], "return_char_limit": 500},
    "tools.retrieve": lambda w: {"tool_id": w.tool()},
    "tools.update": lambda w: {"tool_id": w.tool(), "description": "Twice a number."},
    "tools.list": lambda w: {"limit": 100},
    "tools.delete": lambda w: {"tool_id": w.tool()},
    "tools.search": lambda w: {"query": "memory", "limit": 3},
    "tools.upsert": lambda w: {"source_code": w.source(), "default_requires_approval": True},
    "archives.create": lambda w: {"name": "moons", "embedding": "openai/text-embedding-3-small"},
    "archives.retrieve": lambda w: {"archive_id": w.archive()},
    "archives.update": lambda w: {"archive_id": w.archive(), "description": "Some."},
    "archives.list": _of("attached_archive", "agent_id"),
    "archives.delete": lambda w: {"archive_id": w.archive()},
    "archives.passages.create": lambda w: {"archive_id": w.archive(), "text": "Io.", "metadata": {"of": "Jupiter"}},
    "archives.passages.create_many": lambda w: {"archive_id": w.archive(), "passages": [{"text": "Io."}]},
    "archives.passages.delete": _of("passage"),
    "passages.search": _of("passage", "archive_id", query="volcanoes"),
    "messages.retrieve": _of("talk", "message_id"),
    "messages.list": lambda w: {"limit": 20},
    "messages.search": _of("talk", "agent_id", query="tea", search_mode="fts"),
    "models.list": lambda w: {},
    "models.embeddings.list": lambda w: {},
    "tags.list": lambda w: {},
    # --- folders
    "folders.create": lambda w: {"name": w.name(), "description": "Papers.", "metadata": {"a": 1}},
    "folders.retrieve": lambda w: {"folder_id": w.new_folder()},
    "folders.update": lambda w: {"folder_id": w.new_folder(), "instructions": "Read them."},
    "folders.list": lambda w: {"limit": 5},
    "folders.delete": lambda w: {"folder_id": w.new_folder()},
    "folders.agents.list": _of("folder", "folder_id"),
    "folders.files.upload": lambda w: {"folder_id": w.new_folder(), "file": ("paper.md", b"# Paper", "text/markdown")},
    "folders.files.retrieve": _of("folder", "folder_id", "file_id", include_content=True),
    "folders.files.list": _of("folder", "folder_id", include_content=True),
    "folders.files.delete": _of("folder", "folder_id", "file_id"),
    # --- MCP servers
    "mcp_servers.create": lambda w: {
        "server_name": w.name(),
        "config": {"mcp_server_type": "streamable_http", "server_url": w.mcp_url, "auth_token": "Bearer x"},
    },
    "mcp_servers.create sse": lambda w: {
        "server_name": w.name(),
        "config": {"mcp_server_type": "sse", "server_url": "http://127.0.0.1:9/sse", "custom_headers": {"a": "b"}},
    },
    "mcp_servers.retrieve": _of("mcp_server", "mcp_server_id"),
    "mcp_servers.update": _of("mcp_server", "mcp_server_id", config={"mcp_server_type": "streamable_http"}),
    "mcp_servers.list": lambda w: {},
    "mcp_servers.delete": _of("mcp_server", "mcp_server_id"),
    "mcp_servers.refresh": _of("mcp_server", "mcp_server_id"),
    "mcp_servers.tools.list": _of("mcp_server", "mcp_server_id"),
    "mcp_servers.tools.retrieve": _of("mcp_server"),
    "mcp_servers.tools.run": _of("mcp_server", args={"a": 2, "b": 3}),
    # --- in Letta's cloud only
    "templates.create": lambda w: {"agent_id": w.agent(), "type": "agent"},
    "templates.update": lambda w: {"template_name": "a", "agent_file_json": {}},
    "templates.delete": lambda w: {"template_name": "a"},
    "templates.rollback": lambda w: {"template_name": "a", "version": "1"},
    "templates.save": lambda w: {"template_name": "a"},
    "templates.agents.create": lambda w: {"template_version": "a"},
    "environments.retrieve": lambda w: {"device_id": "a"},
    "environments.list": lambda w: {},
    "environments.send_message": lambda w: {"connection_id": "a", "messages": HELLO},
    "access_tokens.create": lambda w: {"hostname": "http://127.0.0.1", "policy": []},
    "access_tokens.list": lambda w: {},
    "access_tokens.delete": lambda w: {"token": "a", "body": {}},
}


async def arguments_of(entry: str, world: World) -> dict[str, Any]:
    """The arguments of an entry."""
    values = TABLE[entry](world)
    values = await values if inspect.isawaitable(values) else values
    return {name: await value if inspect.isawaitable(value) else value for name, value in values.items()}
