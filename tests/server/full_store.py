"""A store in which everything has as much as it may have, and requests that fit it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure import AsyncPerdure
from perdure.core.agents import Identity
from perdure.core.blocks import Author
from perdure.core.ids import AgentId, BlockId, IdentityId, McpServerId, ProviderId, ToolId
from perdure.core.incoming.limits import Limits
from perdure.core.messages import Text as MessageText
from perdure.core.models import ModelProvider
from perdure.core.specs import Tool, ToolCode, ToolSpec
from perdure.domain.blocks.units import NewBlock, create_block
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.features.files.folder_tables import Folders
from perdure.features.mcp.units import register_server
from perdure.features.mcp.values import McpServer, ToolDefinition, ToolListing
from perdure.storage.tx import Tx
from tests.server.largest import Largest, Operation, Text, words

AUTHOR = Author(kind="user", id="ada")
AGENTS = 50
"""That share a block, a tool and a folder."""

BLOCK_CHARS = 900
NOWHERE = "http://127.0.0.1:9/v1"
"""An address where nobody listens."""

MESSAGES = 300
SOURCE = 'def {name}(text: str) -> str:\n    """Say.\n\n    Args:\n        text: a text.\n    """\n    return text\n'


@dataclass
class FullStore:
    """Names of what there is, by what paths of routes call it; `spare` agents are deleted."""

    model: str
    limits: Limits
    paths: Mapping[str, str]
    agents: Sequence[str]
    batched: str
    blocks: Sequence[str]
    tools: Sequence[str]
    tool_names: Sequence[str]
    folders: Sequence[str]
    archives: Sequence[str]
    message_chars: int
    names: Iterator[int] = field(default_factory=itertools.count)

    def _name(self, number: int) -> str:
        return f"name {next(self.names)}"

    def path(self, operation: Operation) -> str:
        """The path of a request."""
        paths = dict(self.paths)
        if "/attach/" in operation.path or "/detach/" in operation.path:  # others are asked for afterwards
            paths |= {"folder_id": self.folders[-1], "archive_id": self.archives[-1]}
        path = operation.path.format_map(paths)
        of_agent = path == "/v1/conversations/" or operation.path.startswith(("/v1/facts", "/v1/entities"))
        return f"{path}?agent_id={self.paths['agent_id']}" if of_agent else path

    def largest(self, document: Mapping[str, Any], size: int, items: int = 20_000) -> Largest:
        """What makes bodies that this store takes."""
        half = size // 2
        most = {
            "name": 100,
            "label": 100,
            "value": self.limits.block_limit_chars,
            "description": 5_000,
            "instructions": 5_000,
            "query": 1_000,
            "tags[]": half // self.limits.tags_per_item,
            "metadata{}": self.limits.metadata_limit_chars // 20,
            "metadata_{}": self.limits.metadata_limit_chars // 20,
            "system": half,
            "otid": 100,
            "sandbox_dir": 10_000,
            "venv_name": 10_000,
            "K": 1_000,
            # What is only kept for clients stands in the metadata.
            **dict.fromkeys(
                (
                    *("template_id", "base_template_id", "template_name", "deployment_id", "entity_id", "project_id"),
                    "compaction_settings{}",
                ),
                self.limits.metadata_limit_chars // 20,
            ),
        }
        return Largest(document, self._known(), most, size, items)

    def _known(self) -> dict[str, Any]:
        def message(number: int) -> Any:
            return {"role": "user", "content": Text(self.message_chars // self.limits.messages_per_request)}

        def part(number: int) -> Any:
            return {"agent_id": self.batched, "input": Text(self.message_chars)}

        def past(number: int) -> Any:
            return {"role": "user", "text": Text(10_000), "occurred_at": f"2020-01-01T00:00:00.{number:06}Z"}

        def rule(number: int) -> Any:
            return {"type": "constrain_child_tools", "tool_name": f"a{number}", "children": [f"b{number}"]}

        return {
            # Read instead of written where it is left out; or of no use beside another field.
            **dict.fromkeys(
                (
                    *("embedding", "created_at", "occurred_at", "input", "conversation_id", "agent_id", "run_id"),
                    *(
                        "memory_of",
                        "limits",
                        "ChatRequest.tools",
                        "step_id",
                        "CloneIn.number",
                        "before",
                        "after",
                        "start_date",
                        "end_date",
                        "llm_config",
                        "model_settings",
                    ),
                    *("response_format", "context_window_limit", "override_model", "override_system", "callback_url"),
                    *("identity_ids", "message_ids", "from_template", "memory_variables", "bypass_session_patterns"),
                    *("tool_output", "context_engine"),
                    *("auto_recall", "auto_capture", "source_type", "args_json_schema", "json_schema", "agent_type"),
                    *("isolated_block_labels", "model_id", "embedding_config", "source_ids", "project_id"),
                    *("tool_exec_environment_variables", "include_return_message_types", "max_steps", "timeout_s"),
                    *("memory_mb", "return_char_limit", "npm_requirements", "network", "client_tools", "max_tokens"),
                    *("max_reasoning_tokens", "max_files_open", "per_file_view_window_char_limit", "conversation_ids"),
                    "project",
                )
            ),
            **dict.fromkeys(("facts", "valid_at", "invalid_at", "entity_types", "fact_types", "slots")),
            "graph_id": None,  # the agent's
            **dict.fromkeys(
                [f"{name}.agent_id" for name in ("FactIn", "RuleIn", "FactSettingsIn", "TidyIn", "TidyUndoIn")],
                self.paths["agent_id"],
            ),
            "RuleIn.entity": None,
            "NoteIn.fields": {"happened": Text(19_000)},
            "NoteChangesIn.fields": {"text": Text(19_000)},
            "ScheduleIn.schedule": {"type": "recurring", "cron_expression": "0 9 * * *"},
            **dict.fromkeys(("timezone", "starts_at", "ends_at", "max_firings", "quiet_hours")),
            "missed_limit": 10,
            "manager_config": {"manager_type": "round_robin"},
            "EventIn.kind": "login",
            "EventIn.data": {"from": "a phone"},
            **dict.fromkeys(("shared_block_ids", "summaries", "guards")),
            "GroupIn.agent_ids": list(self.agents[1:3]),
            "GroupChangesIn.agent_ids": list(self.agents[1:3]),
            **dict.fromkeys(("FactIn.text", "FactChangesIn.text", "RuleIn.text"), Text(2_000)),
            **{"subject": "Ada", "object": "Turin", "relation": "LIVES_IN", "prompt": Text(10_000)},
            "model": self.model,
            **dict.fromkeys(("CompletionRequest.model", "ChatRequest.model"), self.paths["agent_id"]),
            "ChatRequest.reasoning_effort": "low",
            "ChatRequest.messages": [message(number) for number in range(self.limits.messages_per_request)],
            "NoteIn.tags": [f"tag {number}" for number in range(100)],  # its kind and status are tags too
            "block_ids[]": lambda number: self.blocks[number % len(self.blocks)],
            "folder_ids[]": lambda number: self.folders[number % len(self.folders)],
            "archive_ids[]": lambda number: self.archives[number % len(self.archives)],
            "agent_ids[]": lambda number: self.agents[number % len(self.agents)],
            "run_ids[]": self.paths["run_id"],
            "identifier_key": self._name,
            "ProviderIn.name": lambda number: f"provider-{next(self.names)}",
            "ProviderChangesIn.name": None,
            "provider_type": "openai",
            "base_url": NOWHERE,
            "api_key": "a key",
            **dict.fromkeys(("access_key", "region", "api_version")),
            "PropertyIn.key": lambda number: Text(30),
            "PropertyIn.value": lambda number: Text(150),
            "VariableIn.key": "NEW",
            "VariableChangesIn.key": "OTHER",
            "VariableIn.value": Text(32_000),
            "VariableChangesIn.value": Text(32_000),
            **dict.fromkeys(("timeout", "template", "language")),
            "BatchIn.requests[]": part,
            "label": lambda number: f"new{number}",
            "AgentIn.tools": None,
            "tool_rules[]": rule,
            "messages[]": message,
            "initial_message_sequence[]": message,
            "ImportRequest.messages[]": past,
            "tags[]": lambda number: Text(100),
            "AgentIn.agent_type": "letta_v1_agent",
            "name": self._name,
            "PassageIn.text": Text(900_000),
            "PassageChangesIn.text": Text(900_000),
            "archive_id": self.paths["archive_id"],
            "timezone": "UTC",
            "limit": 10,
            "env_vars": {},
            "environment": {},
            "secrets": {f"S{number}": "x" * 1_000 for number in range(self.limits.secrets_per_owner)},
            "BlockChanges.metadata": None,
            "NewWireBlock.metadata": None,
            "ClientSkill.description": Text(100),
            "ClientSkill.location": "a place",
            "AgentIn.block_ids": None,
            "AgentIn.metadata": None,
            "AgentChangesIn.metadata": None,
            "conversation_settings": None,
            "CreateConversation.model": None,
            "ToolChangesIn.source_code": SOURCE.format(name="tool_0"),
            "ToolIn.name": None,
            "ToolChangesIn.name": None,
            "ToolRunIn.name": None,
            "DeleteSelected.text": "zz",
            "NewWireBlock.limit": None,
            "BlockChanges.limit": None,
            "BlockChanges.value": Text(5_000),
            "CompletionFunction.name": lambda number: f"function_{number}",
            "tool_ids[]": lambda number: self.tools[number % (len(self.tools) - 20)],
            "include_base_tools": False,
            "source_code": SOURCE.format(name="newest") + "# " + words(1_000),
            "code": SOURCE.format(name="newest"),
            "pip_requirements": [],
        }


async def fill(perdure: AsyncPerdure, model: str) -> FullStore:
    """Fill a store."""
    app, limits = perdure.app, perdure.app.settings
    ports, now = app.ports, app.ports.clock.now()
    window = {"context_window_tokens": 10_000_000}
    full, other = [await perdure.create_agent(name, model=model, settings=window) for name in ("full", "other")]
    tool_ids = [ToolId(ports.ids.new("tool")) for _ in range(limits.tools_per_agent)]
    tool_names = [f"tool_{number}" for number in range(limits.tools_per_agent)]

    def blocks(tx: Tx) -> list[BlockId]:
        made = [
            create_block(
                tx,
                BlockId(ports.ids.new("block")),
                NewBlock(label=f"b{number}", value=words(BLOCK_CHARS // 8)),
                author=AUTHOR,
                at=now,
            )
            for number in range(limits.blocks_per_agent)
        ]
        for label in ("persona", "human"):
            block = tx.blocks.find(full.id, label)
            assert block is not None
            tx.blocks.detach(full.id, block.id)
        tx.blocks.attach(full.id, *(block.id for block in made))
        return [block.id for block in made]

    def tools(tx: Tx) -> None:
        for tool_id, name in zip(tool_ids, tool_names, strict=True):
            spec = ToolSpec(
                name=name,
                description="Say a text.",
                parameters={"type": "object", "properties": {}},
                kind="custom",
                tool_type="custom",
            )
            tx.tools.add(
                Tool(id=tool_id, spec=spec), code=ToolCode(source=SOURCE.format(name=name), function=name), at=now
            )
        for tool in tx.tools.list_by_agent(full.id):
            tx.tools.detach(full.id, tool.spec.name)
        tx.tools.attach(full.id, *tool_names[:-9])

    block_ids = await ports.store.write(blocks)
    await ports.store.write(tools)
    archives = [await perdure.archives.create(f"archive {number}") for number in range(limits.archives_per_agent)]
    folders = [await perdure.folders.create(f"folder {number}") for number in range(limits.folders_per_agent)]
    for archive in archives[:-1]:
        await archive.attach_to(full.id)
    passages = await archives[0].insert_many(
        [words(40, seed=number) + " zz" * (number > 99) for number in range(1_000)]
    )
    file = await folders[0].upload(b"a line\n" * 10_000, name="a.txt")
    await folders[0].wait()
    for folder in folders[:-1]:
        await full.files.attach(folder.id)

    identity_id = IdentityId(ports.ids.new("identity"))
    agents: list[AgentId] = []

    def shared(tx: Tx) -> None:
        identity = Identity(
            id=identity_id,
            org_id=tx.org_id,
            identifier_key="ann",
            name="Ann",
            identity_type="user",
            created_at=now,
            updated_at=now,
        )
        tx.identities.add(identity)
        for number in range(AGENTS):
            agent = replace(other.info, id=AgentId(ports.ids.new("agent")), name=f"other {number}")
            agents.append(tx.agents.add(agent).id)
            tx.identities.attach_agent(agent.id, identity_id)
            tx.blocks.attach(agent.id, block_ids[0])
            tx.tools.attach(agent.id, tool_names[0])
            tx.of(Folders).attach(agent.id, folders[0].id, opens=True)

    await ports.store.write(shared)
    config = await perdure.sandbox.put(None)
    variable = await perdure.sandbox.add_variable(config.id, "VARIABLE", "x", None)
    provider = ModelProvider(
        id=ProviderId(ports.ids.new("provider")),
        org_id=full.info.org_id,
        name="mine",
        provider_type="openai",
        base_url=NOWHERE,
        created_at=now,
        updated_at=now,
    )
    await ports.store.write(lambda tx: tx.providers.add(provider))
    said = [("user", None, words(20, seed=number), now) for number in range(MESSAGES)]
    await full.import_messages(said)
    conversation = await full.new_conversation()
    run = await full.send("hello")
    batched = await perdure.create_agent("batched", model=model, settings=window)
    part = RunRequest(agent_id=batched.id, messages=(NewMessage((MessageText("hello"),)),))
    batch = await perdure.jobs.send_batch([part])
    server = McpServer(
        id=McpServerId(ports.ids.new("mcp_server")),
        org_id=full.info.org_id,
        name="server",
        transport="sse",
        url="https://mcp.example",
        created_at=now,
        updated_at=now,
    )
    definitions = [
        ToolDefinition(name=f"look_{number}", description="Look.", parameters={"type": "object", "properties": {}})
        for number in range(500)
    ]
    await ports.store.write(register_server, server, ToolListing(definitions=definitions), ids=ports.ids, at=now)
    fact = await full.facts.add("Ada lives in Turin.", subject="Ada", object="Turin")
    rule = await full.facts.add_rule("salary")
    note, _ = await full.notes.add("doc", "A note", {"text": "Its text."})
    schedule = await full.schedules.create("hello", every="1d")
    await full.skills.write("bake", "Flour and water.")
    group = await perdure.groups.create("round_robin", agents=agents[1:3])
    return FullStore(
        model=model,
        limits=limits,
        paths={
            "agent_id": full.id,
            "block_id": block_ids[0],
            "block_label": "b1",
            "archive_id": archives[0].id,
            "passage_id": passages[0].id,
            "memory_id": passages[1].id,
            "folder_id": folders[0].id,
            "file_id": file.id,
            "note_id": note.id,
            "conversation_id": conversation.id,
            "run_id": run.run_id,
            "message_id": next(message.id for message in await full.messages() if message.role == "user"),
            "job_id": run.run_id.replace("run", "job", 1),
            "batch_id": batch.id,
            "step_id": (await full.steps())[-1].id,
            "tool_id": tool_ids[0],
            "tool_name": tool_names[1],
            "identity_id": identity_id,
            "provider_id": provider.id,
            "fact_id": fact.fact.id,
            "entity_id": fact.subject.id,
            "number": str(rule.seq),
            "sandbox_config_id": config.id,
            "env_var_id": variable.id,
            "mcp_server_id": server.id,
            "mcp_server_name": server.name,
            "mcp_tool_name": "look_0",
            "scheduled_message_id": schedule.id,
            "skill_name": "bake",
            **{"command_name": "none", "plugin_name": "none", "response_id": "none"},
            "group_id": group.id,
        },
        agents=agents,
        batched=batched.id,
        blocks=block_ids,
        tools=tool_ids,
        tool_names=tool_names,
        folders=[folder.id for folder in folders],
        archives=[archive.id for archive in archives],
        message_chars=app.settings.message_limit_chars,
    )
