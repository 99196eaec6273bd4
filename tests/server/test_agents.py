"""The routes of agents, as clients see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from letta_client.types import AgentState
from letta_client.types import Tool as WireTool

from perdure.context.prompts import base_prompt, summary_prompt
from perdure.core.models import ModelOptions
from perdure.testing import says
from tests.server.routed import GPT, JSON, MODEL, Routed, keys, new_agent, routed

NOBODY = "agent-00000000-0000-4000-8000-000000000000"

AGENT_FIELDS = [
    *("created_by_id", "last_updated_by_id", "created_at", "updated_at", "id", "name", "tool_rules", "message_ids"),
    *("system", "agent_type", "llm_config", "embedding_config", "model", "embedding", "model_settings"),
    *("compaction_settings", "response_format", "description", "metadata", "memory", "blocks", "tools", "sources"),
    *("tags", "tool_exec_environment_variables", "secrets", "project_id", "template_id", "base_template_id"),
    *("deployment_id", "entity_id", "identity_ids", "identities", "pending_approval", "message_buffer_autoclear"),
    *("enable_sleeptime", "multi_agent_group", "managed_group", "last_run_completion", "last_run_duration_ms"),
    *("last_stop_reason", "timezone", "max_files_open", "per_file_view_window_char_limit", "hidden"),
]
LLM_CONFIG_FIELDS = [
    *("model", "display_name", "model_endpoint_type", "model_endpoint", "provider_name", "provider_category"),
    *("model_wrapper", "context_window", "put_inner_thoughts_in_kwargs", "handle", "temperature", "max_tokens"),
    *("enable_reasoner", "reasoning_effort", "max_reasoning_tokens", "effort", "frequency_penalty"),
    *("compatibility_type", "verbosity", "tier", "parallel_tool_calls", "response_format", "strict"),
    *("return_logprobs", "top_logprobs", "return_token_ids", "tool_call_parser"),
]
TOOL_FIELDS = [
    *("id", "tool_type", "description", "source_type", "name", "tags", "source_code", "json_schema"),
    *("args_json_schema", "return_char_limit", "pip_requirements", "npm_requirements", "default_requires_approval"),
    *("enable_parallel_execution", "created_by_id", "last_updated_by_id", "metadata_", "project_id"),
]
"""Names in the order in which Letta's server sends them."""


def names(agents: list[Any]) -> list[str]:
    return [agent["name"] for agent in agents]


def tool_names(agent: Any) -> list[str]:
    return [tool["name"] for tool in agent["tools"]]


async def settings_of(server: Routed, agent: Any) -> dict[str, Any]:
    """The agent's settings as they are stored."""
    return dict((await server.library.agent(agent["id"])).info.settings)


async def test_an_agent_has_all_fields_of_the_wire() -> None:
    """In Letta's order, and every one as the official client's types want it."""
    async with routed() as server:
        made = await server.post(
            "/v1/agents/",
            {
                "name": "cap agent",
                "model": GPT,
                "embedding": "openai/text-embedding-3-small",
                "memory_blocks": [{"label": "human", "value": "Name: Ann"}, {"label": "persona", "value": "I am Bob"}],
                "tags": ["x", "y"],
                "timezone": "America/New_York",
                "metadata": {"team": "red"},
                "description": "A test.",
            },
        )
        state = AgentState.model_validate(made)

        assert list(made) == AGENT_FIELDS
        assert list(made["llm_config"]) == LLM_CONFIG_FIELDS
        assert [list(tool) for tool in made["tools"]] == [TOOL_FIELDS] * 3
        assert list(made["model_settings"]) == [
            *("max_output_tokens", "parallel_tool_calls", "provider_type", "temperature", "reasoning"),
            *("response_format", "strict"),
        ]
        assert tool_names(made) == ["conversation_search", "memory_insert", "memory_replace"]
        assert [block.label for block in state.blocks] == ["human", "persona"]
        assert all(block.description and block.limit == 100_000 for block in state.blocks)
        assert made["memory"]["blocks"] == made["blocks"]
        assert (state.model, state.embedding) == (GPT, "openai/text-embedding-3-small")
        assert (state.llm_config.model, state.llm_config.context_window) == ("gpt-4o-mini", 128_000)
        assert (made["tags"], made["timezone"]) == (["x", "y"], "America/New_York")
        assert (made["metadata"], made["description"]) == ({"team": "red"}, "A test.")
        assert made["system"] == base_prompt()
        assert await server.get(f"/v1/agents/{made['id']}") == made
        assert await server.get("/v1/agents/") == [made]
        assert await server.get("/v1/agents") == [made]


@pytest.mark.uses("files")
async def test_an_agent_can_be_made_of_a_model_alone() -> None:
    """It has a name, the tools of its type and no blocks."""
    async with routed() as server:
        made = await server.post("/v1/agents", {"model": MODEL})

        assert made["name"].isalpha()
        assert (made["agent_type"], made["timezone"], made["tags"]) == ("letta_v1_agent", "UTC", [])
        assert (made["blocks"], made["hidden"], made["metadata"]) == ([], None, {})
        assert (made["max_files_open"], made["per_file_view_window_char_limit"]) == (10, 25_000)
        assert tool_names(made) == ["conversation_search", "memory_insert", "memory_replace"]


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"model": "gpt"}, 422, "body.model"),
        ({"model": "nobody/knows"}, 404, "nobody/knows"),
        ({"model": MODEL, "name": "a/b"}, 422, "body.name"),
        ({"model": MODEL, "name": ""}, 422, "body.name"),
        ({"model": MODEL, "name": "  "}, 422, "name"),
        ({"model": MODEL, "name": 5}, 422, "body.name"),
        ({"model": MODEL, "agent_type": "robot"}, 422, "body.agent_type"),
        ({"model": MODEL, "timezone": "Mars/Olympus"}, 422, "Mars/Olympus"),
        ({"model": MODEL, "tools": ["no_such_tool"]}, 404, "no_such_tool"),
        ({"model": MODEL, "tool_ids": ["x"]}, 422, "body.tool_ids.0"),
        ({"model": MODEL, "tool_ids": ["tool-00000000-0000-4000-8000-000000000000"]}, 404, "tool-0000"),
        ({"model": MODEL, "block_ids": ["block-00000000-0000-4000-8000-000000000000"]}, 404, "block-0000"),
        ({"model": MODEL, "memory_blocks": [{"label": "x"}]}, 422, "body.memory_blocks.0.value"),
        ({"model": MODEL, "memory_blocks": [{"label": "", "value": ""}]}, 422, "label"),
        ({"model": MODEL, "memory_blocks": [{"label": "x", "value": "", "limit": 0}]}, 422, "limit"),
        ({"model": MODEL, "memory_blocks": [{"label": "x", "value": ""}] * 2}, 409, "'x'"),
        ({"model": MODEL, "context_window_limit": 10}, 422, "context window"),
        ({"model": MODEL, "model_settings": {"temperature": 9}}, 422, "body.model_settings.temperature"),
        ({"model": MODEL, "model_settings": {"reasoning": {"reasoning_effort": "?"}}}, 422, "reasoning_effort"),
        ({"model": MODEL, "tags": "red"}, 422, "body.tags"),
        ({"model": MODEL, "metadata": []}, 422, "body.metadata"),
        ({"model": MODEL, "initial_message_sequence": [{"role": "user", "content": " "}]}, 422, "empty"),
        ({"model": MODEL, "initial_message_sequence": [{"role": "tool", "content": "x"}]}, 422, "role"),
        ({"model": MODEL, "secrets": {"K K": "V"}}, 422, "secret name"),
        ({"model": MODEL, "tool_rules": [{"type": "run_first"}]}, 422, "tool_rules.0.tool_name"),
        ({"model": MODEL, "identity_ids": ["identity-1"]}, 422, "identity_ids"),
        ({"model": MODEL, "folder_ids": ["source-1"]}, 422, "folder_ids"),
        ({"model": MODEL, "from_template": "t"}, 501, "from_template"),
    ],
)
async def test_an_agent_that_cannot_be_made_is_not_made(body: dict[str, Any], status: int, named: str) -> None:
    """The answer names the field or the value, and nothing is left behind."""
    async with routed() as server:
        answered, detail = await server.refused("POST", "/v1/agents/", body)

        assert (answered, named in detail) == (status, True), detail
        assert await server.get("/v1/agents/") == []
        assert await server.get("/v1/blocks/count") == 0


async def test_what_is_not_here_may_be_asked_for_in_vain() -> None:
    """Empty forms of what is not supported are fine, and so are fields of clients that are newer than we are."""
    async with routed() as server:
        made = await new_agent(
            server,
            secrets={},
            tool_rules=[],
            enable_sleeptime=False,
            identity_ids=[],
            initial_message_sequence=[],
            newest_field={"of": "a client"},
        )

        assert made["secrets"] == made["tool_rules"] == []
        assert made["enable_sleeptime"] is False


async def test_tools_by_name_and_id() -> None:
    """They join the defaults of the type; tools of a default set that are not here are left out of it."""
    async with routed() as server:
        known = {tool["name"]: tool["id"] for tool in (await server.post("/v1/agents/", {"model": MODEL}))["tools"]}
        both = await new_agent(server, tools=["archival_memory_insert"], tool_ids=[known["memory_insert"]])
        older = await new_agent(server, agent_type="memgpt_v2_agent", include_base_tools=True)

        assert tool_names(both) == ["archival_memory_insert", "memory_insert"]
        assert older["agent_type"] == older["memory"]["agent_type"] == "memgpt_v2_agent"
        assert tool_names(older) == ["conversation_search", "memory_insert", "memory_replace", "send_message"]
        assert (await server.get(f"/v1/agents/{older['id']}"))["agent_type"] == "memgpt_v2_agent"


async def test_an_agents_type_brings_rules_and_settings() -> None:
    """A sleeptime agent ends with memory_finish_edits only; a workflow agent keeps no messages in its buffer."""
    rule = {"type": "exit_loop", "tool_name": "memory_insert"}
    async with routed() as server:
        asleep = await new_agent(server, agent_type="sleeptime_agent", include_base_tools=True)
        bare = await new_agent(server, agent_type="sleeptime_agent")
        ruled = await new_agent(server, agent_type="sleeptime_agent", include_base_tools=True, tool_rules=[rule])
        work = await new_agent(server, agent_type="workflow_agent", message_buffer_autoclear=False)

        assert {(one["type"], one["tool_name"]) for one in asleep["tool_rules"]} == {
            ("exit_loop", "memory_finish_edits"),
            *(("continue_loop", name) for name in ("memory_replace", "memory_insert", "memory_rethink")),
        }
        assert bare["tool_rules"] == []
        assert [one["tool_name"] for one in ruled["tool_rules"]] == ["memory_insert"]
        assert (work["message_buffer_autoclear"], asleep["message_buffer_autoclear"]) == (True, False)


async def test_voice_agents_have_their_tools() -> None:
    """One talks, the other one keeps its memory, and ends when it is done."""
    async with routed() as server:
        talks = await new_agent(server, agent_type="voice_convo_agent", include_base_tools=True)
        keeps = await new_agent(server, agent_type="voice_sleeptime_agent", include_base_tools=True)

        assert (talks["agent_type"], keeps["agent_type"]) == ("voice_convo_agent", "voice_sleeptime_agent")
        assert tool_names(talks) == ["search_memory", "send_message"]
        assert tool_names(keeps) == ["finish_rethinking_memory", "rethink_user_memory", "store_memories"]
        assert {(one["type"], one["tool_name"]) for one in keeps["tool_rules"]} == {
            ("exit_loop", "finish_rethinking_memory"),
            ("continue_loop", "store_memories"),
            ("continue_loop", "rethink_user_memory"),
        }
        assert {tool["tool_type"] for tool in keeps["tools"]} == {"letta_voice_sleeptime_core"}


async def test_settings_of_compaction_are_whole() -> None:
    """What a client leaves out has the defaults of a request to compact."""
    default = {
        **{"model": MODEL, "model_settings": None, "prompt": summary_prompt(), "prompt_acknowledgement": False},
        **{"clip_chars": 50_000, "mode": "sliding_window", "sliding_window_percentage": 0.3},
    }
    async with routed() as server:
        made = await new_agent(server)
        path = f"/v1/agents/{made['id']}"
        changed = await server.patch(path, {"compaction_settings": {"mode": "all", "prompt": "Be brief."}})

        assert made["compaction_settings"] == default
        assert changed["compaction_settings"] == default | {"mode": "all", "prompt": "Be brief."}
        assert AgentState.model_validate(changed).compaction_settings is not None


async def test_a_whole_agent_may_be_sent_back() -> None:
    """Its message ids too; choosing others is refused, and says so."""
    async with routed() as server:
        made = await new_agent(server, memory_blocks=[{"label": "human", "value": "Ann"}])
        path = f"/v1/agents/{made['id']}"
        again = await server.patch(path, made)

        assert made["message_ids"] != []
        assert again | {"updated_at": None} == made | {"updated_at": None}
        assert (await server.refused("PATCH", path, {"message_ids": [*made["message_ids"], NOBODY]}))[0] == 501


async def test_model_options_stand_where_models_look_for_them() -> None:
    """In the words of our own options, and on the wire as they were given."""
    async with routed() as server:
        made = await new_agent(
            server,
            model=GPT,
            context_window_limit=50_000,
            model_settings={
                "provider_type": "openai",
                "temperature": 0.3,
                "max_output_tokens": 999,
                "parallel_tool_calls": False,
                "reasoning": {"reasoning_effort": "high"},
                "response_format": {"type": "json_object"},
                "strict": True,
            },
            compaction_settings={"mode": "all"},
        )
        settings = await settings_of(server, made)

        assert ModelOptions.from_settings(settings) == ModelOptions(
            temperature=0.3,
            max_output_tokens=999,
            parallel_tool_calls=False,
            reasoning_effort="high",
            response_format={"type": "json_object"},
        )
        assert settings["context_window_tokens"] == made["llm_config"]["context_window"] == 50_000
        assert made["model_settings"] == {
            "max_output_tokens": 999,
            "parallel_tool_calls": False,
            "provider_type": "openai",
            "temperature": 0.3,
            "reasoning": {"reasoning_effort": "high"},
            "response_format": {"type": "json_object"},
            "strict": True,
        }
        assert (made["llm_config"]["max_tokens"], made["llm_config"]["temperature"]) == (999, 0.3)
        assert made["response_format"] == {"type": "json_object"}
        assert made["compaction_settings"]["mode"] == "all"
        AgentState.model_validate(made)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"provider_type": "anthropic", "thinking": {"type": "enabled", "budget_tokens": 2048}}, {"budget": 2048}),
        ({"provider_type": "anthropic", "thinking": {"type": "disabled", "budget_tokens": 2048}}, {}),
        ({"provider_type": "anthropic", "effort": "max"}, {"effort": "xhigh"}),
        ({"provider_type": "google_ai", "thinking_config": {"thinking_budget": 512}}, {"budget": 512}),
        ({"provider_type": "zai", "thinking": {"type": "enabled"}}, {}),
        ({"provider_type": "nobody"}, {}),
    ],
)
async def test_every_provider_has_its_own_words(given: dict[str, Any], options: dict[str, Any]) -> None:
    """Reasoning is asked for in different ways, and shown in the way of the provider type."""
    async with routed() as server:
        made = await new_agent(server, model_settings=given)
        state = AgentState.model_validate(made)

        found = ModelOptions.from_settings(await settings_of(server, made))
        assert (found.max_reasoning_tokens, found.reasoning_effort) == (options.get("budget"), options.get("effort"))
        shown = given["provider_type"] if given["provider_type"] != "nobody" else "openai"
        assert state.api_model_settings is not None and state.api_model_settings.provider_type == shown


async def test_the_older_way_to_name_a_model() -> None:
    """`llm_config` gives handle, window and options; `openai-proxy` is OpenAI."""
    async with routed() as server:
        config = {
            "model": "gpt-4o-mini",
            "model_endpoint_type": "openai",
            "context_window": 20_000,
            "temperature": 0.5,
            "max_tokens": 77,
        }
        by_config = await server.post("/v1/agents/", {"name": "old", "llm_config": config})
        by_proxy = await new_agent(server, model="openai-proxy/gpt-4o-mini")

        assert by_config["model"] == by_proxy["model"] == by_proxy["llm_config"]["handle"] == GPT
        assert by_config["llm_config"]["context_window"] == 20_000
        assert (by_config["model_settings"]["temperature"], by_config["llm_config"]["max_tokens"]) == (0.5, 77)


async def test_changing_an_agent() -> None:
    """What is given changes, all else stays; null is nothing given."""
    async with routed() as server:
        made = await new_agent(server, tags=["a"], description="first", system="Be kind.", metadata={"a": 1})
        path = f"/v1/agents/{made['id']}"
        same = await server.patch(path, {"name": None, "tags": None, "model": None, "system": None})
        assert same == made

        changed = await server.patch(
            path,
            {
                "name": "new name",
                "description": "second",
                "system": "Be brief.",
                "tags": ["b", "c"],
                "metadata": {"b": 2},
                "timezone": "Europe/Rome",
                "model": GPT,
                "hidden": True,
                "message_buffer_autoclear": True,
                "context_window_limit": 30_000,
                "max_tokens": 500,
                "embedding": "openai/text-embedding-3-small",
            },
        )
        AgentState.model_validate(changed)
        expected = {
            "name": "new name",
            "description": "second",
            "system": "Be brief.",
            "tags": ["b", "c"],
            "metadata": {"b": 2},
            "timezone": "Europe/Rome",
            "model": GPT,
            "hidden": True,
            "message_buffer_autoclear": True,
            "embedding": "openai/text-embedding-3-small",
        }
        assert {name: changed[name] for name in expected} == expected
        assert (changed["llm_config"]["context_window"], changed["model_settings"]["max_output_tokens"]) == (
            30_000,
            500,
        )
        assert changed["created_at"] == made["created_at"]
        assert await server.get(path) == changed

        for body, status, named in (
            ({"name": "a/b"}, 422, "body.name"),
            ({"model": "no/model"}, 404, "no/model"),
            ({"timezone": "Nowhere"}, 422, "Nowhere"),
            ({"secrets": {"K K": "V"}}, 422, "secret name"),
            ({"message_ids": ["message-1"]}, 501, "message_ids"),
        ):
            answered, detail = await server.refused("PATCH", path, body)
            assert (answered, named in detail) == (status, True), detail
        assert await server.get(path) == changed
        assert (await server.refused("PATCH", f"/v1/agents/{NOBODY}", {"name": "x"}))[0] == 404


async def test_what_was_shown_may_be_sent_back() -> None:
    """A client that writes back what it has read changes nothing that a model is asked with."""
    async with routed() as server:
        made = await new_agent(server, model=GPT)
        before = await settings_of(server, made)
        body = {name: made[name] for name in ("name", "system", "tags", "metadata", "model", "timezone")}
        body["model_settings"] = {"reasoning": made["model_settings"]["reasoning"]}
        await server.patch(f"/v1/agents/{made['id']}", body)

        agent = (await server.library.agent(made["id"])).info
        assert agent.system is None
        assert ModelOptions.from_settings(agent.settings) == ModelOptions.from_settings(before)


async def test_whole_sets_of_tools_and_blocks() -> None:
    """`tool_ids` and `block_ids` say what the agent has from now on."""
    async with routed() as server:
        made = await new_agent(server, include_base_tools=True, memory_blocks=[{"label": "a", "value": "1"}])
        other = await server.post("/v1/blocks/", {"label": "b", "value": "2"})
        kept = made["tools"][0]
        changed = await server.patch(f"/v1/agents/{made['id']}", {"tool_ids": [kept["id"]], "block_ids": [other["id"]]})

        assert changed["tools"] == [kept]
        assert [block["label"] for block in changed["blocks"]] == ["b"]
        assert await server.get(f"/v1/blocks/{made['blocks'][0]['id']}")  # detached, not removed


async def test_lists_are_filtered() -> None:
    """By name, a part of it, one or all tags, who made it; hidden agents show up only when they are asked for."""
    async with routed() as server:
        made: dict[str, dict[str, Any]] = {
            "Ann": {"tags": ["red", "big"]},
            "Anna": {"tags": ["red"]},
            "Bob": {"tags": ["bi", "a \"quoted\" 'tag' 100%"]},
            "ghost": {"hidden": True, "tags": ["red"]},
            "helper": {"tags": ["role:subagent"]},
        }
        for name, fields in made.items():
            await new_agent(server, name, **fields)

        async def list_names(**params: Any) -> list[str]:
            found = names(await server.get("/v1/agents/", order="asc", **params))
            assert await server.get("/v1/agents/count", **params) == len(found)
            return found

        assert await list_names() == ["Ann", "Anna", "Bob"]
        assert await list_names(show_hidden_agents=True) == ["Ann", "Anna", "Bob", "ghost", "helper"]
        assert await list_names(name="Ann") == ["Ann"]
        assert await list_names(query_text="aNN") == ["Ann", "Anna"]
        assert await list_names(query_text="%") == []
        assert await list_names(tags="red") == ["Ann", "Anna"]
        assert await list_names(tags=["red", "bi"]) == ["Ann", "Anna", "Bob"]
        assert await list_names(tags=["red", "big"], match_all_tags=True) == ["Ann"]
        assert await list_names(tags="a \"quoted\" 'tag' 100%") == ["Bob"]
        assert await list_names(tags="RED") == []
        assert await list_names(created_by_id="user-00000000-0000-4000-8000-000000000000") == ["Ann", "Anna", "Bob"]
        assert await list_names(created_by_id="somebody") == []
        assert await list_names(last_stop_reason="end_turn") == []
        assert await list_names(identity_id="identity-123e4567-e89b-42d3-a456-426614174000") == []
        assert await list_names(include=["agent.tools", "agent.blocks"]) == ["Ann", "Anna", "Bob"]
        assert await server.get("/v1/agents/count") == 3
        assert (await server.refused("GET", "/v1/agents/", order_by="colour"))[0] == 422


async def test_agents_are_sorted_by_what_was_asked() -> None:
    """By creation, by change, by their last run; pages follow each other in each of them."""
    async with routed(says("Hello!")) as server:
        made = {name: await new_agent(server, name) for name in ("one", "two", "three", "four")}
        await server.patch(f"/v1/agents/{made['two']['id']}", {"description": "changed"})
        agent = await server.library.agent("three")
        await agent.send("hi")

        async def paged(**params: Any) -> list[str]:
            seen: list[str] = []
            after: dict[str, Any] = {}
            while items := await server.get("/v1/agents/", limit=2, **params, **after):
                seen += names(items)
                after = {"after": items[-1]["id"]}
            return seen

        assert await paged() == ["four", "three", "two", "one"]
        assert await paged(order="asc") == ["one", "two", "three", "four"]
        assert (await paged(order_by="updated_at"))[0] == "two"
        assert await paged(sort_by="last_run_completion") == ["three", "four", "two", "one"]
        assert await paged(order_by="last_run_completion", order="asc") == ["one", "two", "four", "three"]

        used = await server.get(f"/v1/agents/{agent.id}")
        state = AgentState.model_validate(used)
        assert (state.last_stop_reason, state.last_run_duration_ms is not None) == ("end_turn", True)
        assert state.last_run_completion is not None
        assert used["message_ids"][1:] == [message.id for message in await agent.messages()]
        assert names(await server.get("/v1/agents/", last_stop_reason="end_turn")) == ["three"]


async def test_the_official_client_meets_every_agent_once() -> None:
    """Whatever the order, page by page until one is empty."""
    async with routed() as server:
        made = [await new_agent(server, f"agent {number}") for number in range(5)]
        ids = [agent["id"] for agent in made]

        assert [agent.id async for agent in server.letta.agents.list(limit=2)] == ids[::-1]
        assert [agent.id async for agent in server.letta.agents.list(limit=2, order="asc")] == ids
        assert [agent.id async for agent in server.letta.agents.list(limit=2, order="desc")] == ids[::-1]
        backwards = [agent.id async for agent in server.letta.agents.list(limit=2, order="asc", before=ids[4])]
        assert sorted(backwards) == sorted(ids[:4])


async def test_the_official_client_has_its_way() -> None:
    """Create, retrieve, update, tools, delete, as its own methods do it."""
    async with routed() as server:
        made = await server.letta.agents.create(
            name="ann", model=MODEL, memory_blocks=[{"label": "human", "value": "Ann"}], tags=["x"]
        )
        assert (await server.letta.agents.retrieve(made.id, include=["agent.tools"])).tools == made.tools
        assert (await server.letta.agents.update(made.id, name="anna")).name == "anna"

        listed = [tool.id async for tool in server.letta.agents.tools.list(made.id, limit=2)]
        assert sorted(listed) == sorted(tool.id for tool in made.tools)
        for order in ("asc", "desc"):
            again = [tool.id async for tool in server.letta.agents.tools.list(made.id, limit=1, order=order)]
            assert sorted(again) == sorted(listed)
        gone = made.tools[0]
        await server.letta.agents.tools.detach(gone.id, agent_id=made.id)
        assert gone.id not in [tool.id async for tool in server.letta.agents.tools.list(made.id)]
        await server.letta.agents.tools.attach(gone.id, agent_id=made.id)
        assert gone.id in [tool.id async for tool in server.letta.agents.tools.list(made.id)]

        await server.letta.agents.delete(made.id)
        assert [agent async for agent in server.letta.agents.list()] == []


async def test_tools_of_an_agent() -> None:
    """Attaching answers with the agent; what is not there is told."""
    async with routed() as server:
        made = await new_agent(server, tools=["memory_insert"])
        (tool,) = await server.get(f"/v1/agents/{made['id']}/tools")
        WireTool.model_validate(tool)
        path = f"/v1/agents/{made['id']}/tools"

        assert tool == made["tools"][0] and list(tool) == TOOL_FIELDS
        assert keys(tool["json_schema"])["parameters"]
        assert (await server.patch(f"{path}/attach/{tool['id']}"))["tools"] == [tool]
        assert (await server.patch(f"{path}/detach/{tool['id']}"))["tools"] == []
        assert (await server.refused("PATCH", f"{path}/detach/{tool['id']}"))[0] == 404
        ghost = "tool-00000000-0000-4000-8000-000000000000"
        assert (await server.refused("PATCH", f"{path}/attach/{ghost}"))[0] == 404
        assert (await server.refused("PATCH", f"{path}/attach/x"))[0] == 422
        assert (await server.refused("PATCH", f"/v1/agents/{NOBODY}/tools/attach/{tool['id']}"))[0] == 404
        assert (await server.refused("GET", f"/v1/agents/{NOBODY}/tools"))[0] == 404


async def test_an_agent_begins_with_messages() -> None:
    """They are in its history from the start, and are shown to the model."""
    async with routed(says("Blue.")) as server:
        made = await new_agent(
            server,
            initial_message_sequence=[
                {"role": "user", "content": "My favourite colour is blue."},
                {"role": "assistant", "content": [{"type": "text", "text": "Noted."}], "otid": "mine"},
            ],
        )
        agent = await server.library.agent(made["id"])
        messages = await agent.messages()

        assert [(message.role, message.text) for message in messages] == [
            ("user", "My favourite colour is blue."),
            ("assistant", "Noted."),
        ]
        assert messages[1].otid == "mine"
        assert made["message_ids"][1:] == [message.id for message in messages]
        assert (await agent.send("Which is it?")).text == "Blue."

        image = [{"type": "image", "source": {"type": "url", "url": "http://test/cat.png"}}]
        body = {"model": MODEL, "initial_message_sequence": [{"role": "user", "content": image}]}
        assert (await server.refused("POST", "/v1/agents/", body))[0] == 501


async def test_unknown_agents_are_not_found() -> None:
    """404 for an id that is nobody's, 422 for a text that is no id."""
    async with routed() as server:
        for method, tail in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/core-memory"), ("GET", "/tools")):
            body: Any = {} if method == "PATCH" else None
            status, detail = await server.refused(method, f"/v1/agents/{NOBODY}{tail}", body)
            assert (status, detail) == (404, f"Agent with ID {NOBODY} not found"), (method, tail)
            assert (await server.refused(method, f"/v1/agents/agent-1{tail}", body))[0] == 422


async def test_deleting_an_agent() -> None:
    """It is gone, its blocks stay."""
    async with routed() as server:
        made = await new_agent(server, memory_blocks=[{"label": "human", "value": "Ann"}])
        answer = await server.delete(f"/v1/agents/{made['id']}")

        assert answer == {"message": f"Agent id={made['id']} successfully deleted"}
        assert (await server.refused("GET", f"/v1/agents/{made['id']}"))[0] == 404
        assert await server.get("/v1/blocks/count") == 1


async def test_old_core_memory() -> None:
    """The older shape of an agent's blocks."""
    async with routed() as server:
        made = await new_agent(server, memory_blocks=[{"label": "human", "value": "Ann"}])

        assert await server.get(f"/v1/agents/{made['id']}/core-memory") == made["memory"]


async def test_awkward_texts_come_back() -> None:
    """Half a surrogate pair in one agent must not spoil the list of all; a number that is none is refused."""
    async with routed() as server:
        odd = "\ud800\x00"
        body = {"model": MODEL, "description": odd, "tags": [odd], "metadata": {odd: odd}, "system": odd}
        made = await server.post_raw("/v1/agents/", body)

        assert {name: made[name] for name in body} == body
        assert await server.get("/v1/agents/") == [made]
        for field in ('"metadata": {"a": NaN}', '"model_settings": {"x": NaN}', '"embedding_config": {"x": 1e999}'):
            content = f'{{"model": "{MODEL}", {field}}}'
            answer = await server.http.post("/v1/agents/", content=content, headers=JSON)
            assert (answer.status_code, "not finite" in answer.text) == (422, True)


async def test_changes_at_once_all_count() -> None:
    """Two clients that change different fields lose nothing of each other's."""
    async with routed() as server:
        made = await new_agent(server)
        path = f"/v1/agents/{made['id']}"
        bodies: list[Any] = [{"description": "d"}, {"embedding": "x/y"}, {"max_tokens": 5}, {"tags": ["t"]}]
        await asyncio.gather(*(server.patch(path, body) for body in bodies))
        now = await server.get(path)

        assert (now["description"], now["embedding"], now["tags"]) == ("d", "x/y", ["t"])
        assert now["llm_config"]["max_tokens"] == 5


async def test_what_memory_does_by_itself_is_shown_only_where_it_is_set() -> None:
    """Made, changed and taken away; what can't be worked by is refused, and nothing is changed."""
    fields = {"auto_recall", "auto_capture", "bypass_session_patterns"}
    async with routed() as server:
        plain = await new_agent(server)
        assert not fields & set(plain)
        path = f"/v1/agents/{plain['id']}"

        on = await server.patch(path, {"auto_recall": {"budget_tokens": 300}, "bypass_session_patterns": ["conv-*"]})
        assert (on["auto_recall"], on["bypass_session_patterns"]) == ({"budget_tokens": 300}, ["conv-*"])
        for wrong in (
            {"auto_recall": {"budget_tokens": 0}},
            {"auto_recall": "maybe"},
            {"bypass_session_patterns": [""]},
        ):
            assert (await server.refused("PATCH", path, wrong))[0] == 422
        assert (await server.patch(path, {"name": "bea"}))["auto_recall"] == {"budget_tokens": 300}
        off = await server.patch(path, {"auto_recall": False, "bypass_session_patterns": []})
        assert fields & set(off) == {"auto_recall"}
        assert off["auto_recall"] is False
        assert (await new_agent(server, auto_recall=True))["auto_recall"] is True


async def test_guards_are_shown_only_where_they_are_set() -> None:
    """An object, or `false` for none; an empty object brings the defaults back."""
    async with routed() as server:
        plain = await new_agent(server)
        path = f"/v1/agents/{plain['id']}"
        on = await server.patch(path, {"guards": {"recent_steps": 20}})
        off = await server.patch(path, {"guards": False})

        assert (plain.get("guards"), on["guards"], off["guards"]) == (None, {"recent_steps": 20}, False)
        for wrong in ({"recent_steps": -1}, {"steps": 3}, "maybe", 7):
            assert (await server.refused("PATCH", path, {"guards": wrong}))[0] == 422
        assert "guards" not in await server.patch(path, {"guards": {}})


async def test_tags_are_listed_in_pages() -> None:
    """Those of agents and blocks, each once, in alphabetical order; a part of the name filters, cursors are tags."""
    async with routed() as server:
        for tags in (["red", "Blue"], ["red"], []):
            await new_agent(server, tags=tags)
        await server.post("/v1/blocks/", {"label": "notes", "value": "x", "tags": ["green 10%", "red"]})
        gone = await new_agent(server, tags=["gone"])
        await server.delete(f"/v1/agents/{gone['id']}")

        async def find(**query: Any) -> Any:
            return await server.letta.tags.list(**query)

        assert await find() == ["Blue", "green 10%", "red"]
        assert await find(order="desc", limit=2) == ["red", "green 10%"]
        assert await find(after="Blue", limit=1) == await find(before="red", limit=1) == ["green 10%"]
        assert await find(after="green 10%", order="desc") == ["Blue"]
        assert await find(name="E", before="red") == ["Blue", "green 10%"]
        assert await find(query_text="10%") == ["green 10%"]
        assert await find(name="x") == []


async def test_lists_are_filtered_by_project() -> None:
    """A project that nothing has gives an empty list; what only looks like a project does not count."""
    async with routed(says("hi"), says("hi")) as server:
        ada = await new_agent(server, project_id="p_1", template_id="t1")
        bob = await new_agent(server, metadata={"project_id": "p_1"}, model_settings={"provider_type": "openai"})
        block = await server.post("/v1/blocks/", {"label": "a", "value": "x", "project_id": "p_1"})
        other = await server.post("/v1/blocks/", {"label": "b", "value": "y", "metadata": {"project_id": "p_1"}})
        for agent in (ada, bob):
            await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hi"})

        async def ids(path: str, **query: Any) -> list[str]:
            return [one["id"] for one in await server.get(path, **query)]

        assert (ada["project_id"], block["project_id"]) == ("p_1", "p_1")
        assert await ids("/v1/agents/", project_id="p_1") == [ada["id"]]
        assert await ids("/v1/blocks/", project_id="p_1") == [block["id"]]
        steps = await server.get("/v1/steps/", project_id="p_1")
        assert {(step["agent_id"], step["project_id"]) for step in steps} == {(ada["id"], "p_1")}
        assert (await server.get(f"/v1/steps/{steps[0]['id']}"))["project_id"] == "p_1"
        assert (await server.get(f"/v1/runs/{steps[0]['run_id']}/steps"))[0]["project_id"] == "p_1"
        assert await ids("/v1/agents/", template_id="t1") == [ada["id"]]
        for project in ("p21", "P_1", "p_", ""):
            for path in ("/v1/agents/", "/v1/blocks/", "/v1/steps/"):
                assert await ids(path, project_id=project) == []
        await server.patch(f"/v1/agents/{ada['id']}", {"project_id": "p2"})
        await server.patch(f"/v1/blocks/{other['id']}", {"project_id": "p2"})
        assert await ids("/v1/agents/", project_id="p2") == [ada["id"]]
        assert await ids("/v1/blocks/", project_id="p2") == [other["id"]]
        assert await ids("/v1/agents/", project_id="p_1") == await ids("/v1/agents/", base_template_id="t1") == []


async def test_unknown_fields_of_a_change_are_ignored() -> None:
    """As newer and older clients expect: the others are changed."""
    async with routed() as server:
        made = await new_agent(server)
        sent = {"name": "bea", "flavour": {"a": [1]}, "last_run_completion": None, "managed_group": {"x": 1}}
        changed = await server.patch(f"/v1/agents/{made['id']}", sent)

        assert changed == {**made, "name": "bea", "updated_at": changed["updated_at"]}


async def test_an_agent_has_a_context_engine() -> None:
    """A field beyond the wire, by name or with options; an unknown one is refused with those that there are."""
    async with routed() as server:
        made = await new_agent(server, context_engine="sliding_window")
        path = f"/v1/agents/{made['id']}"
        parts = {"assembler": "paged", "compressor": "stubs"}
        changed = await server.patch(path, {"context_engine": {"name": "composition", "options": parts}})
        refused = await server.refused("PATCH", path, {"context_engine": "slidingwindow"})
        await server.patch(path, {"context_engine": ""})
        plain = await server.get(path)

    assert made["context_engine"] == "sliding_window"
    assert changed["context_engine"]["options"] == parts
    assert refused[0] == 422
    assert "there are paged, sliding_window" in str(refused)
    assert "context_engine" not in plain
