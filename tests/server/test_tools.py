"""The routes of tools, as clients see them."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from letta_client.types import Tool as WireTool
from letta_client.types import ToolSearchResult
from letta_client.types.agents import ToolExecutionResult

from perdure.core.messages import ToolCall
from perdure.core.tools.engine_specs import MEMORY_TOOL_SPECS
from perdure.testing import calls, says
from tests.server.routed import MODEL, new_agent, routed
from tests.server.test_agents import TOOL_FIELDS

NOBODY = "tool-00000000-0000-4000-8000-000000000000"

ROLL = '''
def roll(sides: int, label: str = "x") -> str:
    """Roll a die.

    Args:
        sides: How many sides.
        label: What to say first.
    """
    import random
    print("rolling")
    return f"{label} rolled {min(sides, 1)} of {sides}"
'''

DICT = "def f(a: list[dict[str, int]]):\n  '''F.\n\n  Args:\n    a: x\n  '''"

REMEMBER = '''
def remember(text: str, agent_state: "AgentState") -> str:
    """Remember a text.

    Args:
        text: The text.
    """
    block = agent_state.memory.get_block("human")
    agent_state.memory.update_block_value("human", f"{block.value}; {text}")
    return "remembered"
'''


def named(tools: Any) -> list[str]:
    return [tool["name"] for tool in tools]


async def test_a_tool_has_all_fields_of_the_wire() -> None:
    """In Letta's order, and as the official client's types want them; found again by its id and in lists."""
    async with routed() as server:
        made = await server.post(
            "/v1/tools/",
            {
                "source_code": ROLL,
                "tags": ["game"],
                "return_char_limit": 100,
                "pip_requirements": [{"name": "dice", "version": "1.0"}, {"name": "other"}],
                "npm_requirements": [{"name": "left-pad"}],
                "default_requires_approval": True,
                "enable_parallel_execution": True,
            },
        )
        tool = WireTool.model_validate(made)

        assert list(made) == TOOL_FIELDS
        assert (tool.name, tool.tool_type, tool.source_type, tool.source_code) == ("roll", "custom", "python", ROLL)
        assert tool.json_schema == {
            "name": "roll",
            "description": "Roll a die.",
            "parameters": {
                "type": "object",
                "properties": {
                    "sides": {"type": "integer", "description": "How many sides."},
                    "label": {"type": "string", "default": "x", "description": "What to say first."},
                },
                "required": ["sides"],
                "additionalProperties": False,
            },
        }
        assert (tool.description, tool.tags, tool.return_char_limit) == ("Roll a die.", ["game"], 100)
        assert made["pip_requirements"] == [{"name": "dice", "version": "1.0"}, {"name": "other", "version": None}]
        assert made["npm_requirements"] == [{"name": "left-pad", "version": None}]
        assert (tool.default_requires_approval, tool.enable_parallel_execution) == (True, True)
        assert list(made["metadata_"]) == ["tool_hash"]
        assert await server.get(f"/v1/tools/{made['id']}") == made
        assert await server.get("/v1/tools/", name="roll") == [made]
        agent = await new_agent(server, tools=["roll"])
        assert agent["tools"] == [made]


async def test_making_a_tool_twice_is_the_same_tool() -> None:
    """The same name and source is the one that is there; others are refused, or change it with PUT."""
    async with routed() as server:
        made = await server.post("/v1/tools/", {"source_code": ROLL})
        assert await server.post("/v1/tools/", {"source_code": ROLL, "tags": [], "return_char_limit": 50_000}) == made
        status, detail = await server.refused("POST", "/v1/tools/", {"source_code": ROLL, "tags": ["x"]})
        assert status == 409 and "exists already with other tags" in detail
        other = ROLL.replace("Roll a die", "Roll it")
        status, detail = await server.refused("POST", "/v1/tools/", {"source_code": other})
        assert (status, "'roll' exists already" in detail) == (409, True)
        answer = await server.http.put("/v1/tools/", json={"source_code": other, "tags": ["x"]})
        changed = answer.json()

        assert (changed["id"], changed["description"], changed["tags"]) == (made["id"], "Roll it.", ["x"])
        assert changed["metadata_"] != made["metadata_"]
        assert await server.get("/v1/tools/count", tool_types="custom") == 1


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({}, 422, "body.source_code"),
        ({"source_code": ""}, 400, "Failed to derive json schema: the source is empty"),
        ({"source_code": "def f(:"}, 400, "Failed to derive json schema: line 1: invalid syntax"),
        ({"source_code": "def f(a: int): ..."}, 400, "function f has a missing docstring"),
        ({"source_code": "def f(a):\n 'F.'"}, 400, "line 1: parameter 'a' of f has no annotation"),
        ({"source_code": "def f(a: int):\n 'F.'"}, 400, "json schema: line 1: parameter 'a' of f is not described"),
        ({"source_code": DICT}, 400, "json schema: line 1: parameter 'a' of f: `dict[str, int]` says nothing"),
        ({"source_code": "def f(a: Odd):\n 'F.'"}, 400, "line 1: the annotation `Odd` can't be read"),
        ({"source_code": "def memory_insert():\n 'F.'"}, 409, "tool 'memory_insert' is built in"),
        ({"source_code": "def context_expand():\n 'F.'"}, 409, "tool 'context_expand' is built in"),
        ({"source_code": "def run_code():\n 'F.'"}, 409, "tool 'run_code' is built in"),
        ({"source_code": "x", "source_type": "typescript"}, 422, "needs a json_schema"),
        ({"source_code": ROLL, "source_type": "cobol"}, 422, "use 'python' or 'typescript'"),
        ({"source_code": ROLL, "return_char_limit": 0}, 422, "body.return_char_limit"),
        ({"source_code": ROLL, "pip_requirements": [{"name": "--index-url x"}]}, 422, "requirement '--index-url x'"),
        ({"source_code": ROLL, "env_vars": {"A B": "c"}}, 422, "secret name 'A B'"),
        (
            {"source_code": ROLL, "json_schema": {"name": "roll", "parameters": {"properties": {"faces": {}}}}},
            422,
            "json_schema contradicts the source at parameter 'faces'",
        ),
        ({"source_code": ROLL, "json_schema": {"name": "rolls", "parameters": {}}}, 400, "no function 'rolls'"),
        ({"source_code": ROLL, "json_schema": {"parameters": 5}}, 422, "json_schema.parameters must be an object"),
    ],
)
async def test_what_can_not_be_a_tool_is_refused(body: Any, status: int, detail: str) -> None:
    """With line and reason, and nothing is stored."""
    async with routed() as server:
        before = await server.get("/v1/tools/count")
        for method in ("POST", "PUT"):
            told = await server.refused(method, "/v1/tools/", body)
            assert (told[0], detail in told[1]) == (status, True), told
        assert await server.get("/v1/tools/count") == before


async def test_a_given_schema_is_taken() -> None:
    """As json_schema with its name and description, or as that of a pydantic model; titles are left out."""
    async with routed() as server:
        source = "def manage(data: InventoryEntry, change: int):\n    return data\n"
        args = {
            "title": "Data",
            "type": "object",
            "properties": {"data": {"$ref": "#/$defs/E"}, "change": {"title": "Change", "type": "integer"}},
            "required": ["data", "change"],
            "$defs": {"E": {"title": "E", "type": "object", "properties": {"sku": {"type": "string"}}}},
        }
        made = await server.post(
            "/v1/tools/", {"source_code": source, "args_json_schema": args, "description": "Manage it."}
        )
        assert made["args_json_schema"] == args
        assert made["json_schema"]["description"] == "Manage it."
        assert made["json_schema"]["parameters"]["properties"]["change"] == {"type": "integer"}
        assert made["json_schema"]["parameters"]["$defs"]["E"]["properties"] == {"sku": {"type": "string"}}
        again = {**made["json_schema"], "parameters": {**made["json_schema"]["parameters"]}}
        again["parameters"]["properties"] |= {"request_heartbeat": {"type": "boolean"}}
        answer = await server.http.put("/v1/tools/", json={"source_code": source, "json_schema": again})
        assert list(answer.json()["json_schema"]["parameters"]["properties"]) == ["data", "change"]
        typescript = await server.post(
            "/v1/tools/",
            {
                "source_code": "export function hi(): string { return 'hi' }",
                "source_type": "typescript",
                "json_schema": {"name": "hi", "description": "Hi.", "parameters": {"properties": {}}},
            },
        )
        assert (typescript["name"], typescript["source_type"]) == ("hi", "typescript")
        ran = await server.post("/v1/agents/", {"model": MODEL, "tools": ["hi"]})
        result = await server.post(f"/v1/agents/{ran['id']}/tools/hi/run", {"args": {}})
        assert (result["status"], "only Python is run here" in result["func_return"]) == ("error", True)


async def test_a_tool_is_changed_and_deleted() -> None:
    """What is not given stays; its agents lose a deleted one; what is built in stays what it is."""
    async with routed() as server:
        made = await server.post("/v1/tools/", {"source_code": ROLL, "tags": ["a"], "metadata_": {"k": 1}})
        path = f"/v1/tools/{made['id']}"
        agent = await new_agent(server, tool_ids=[made["id"]])
        assert (await server.patch(path, {}))["id"] == made["id"]
        assert await server.get(path) == made
        changed = await server.patch(path, {"description": "Throw.", "return_char_limit": 9, "timeout_s": 2})
        assert (changed["description"], changed["return_char_limit"], changed["tags"]) == ("Throw.", 9, ["a"])
        assert (changed["timeout_s"], changed["metadata_"]["k"]) == (2, 1)
        renamed = await server.patch(path, {"source_code": ROLL.replace("def roll", "def throw")})
        assert (renamed["name"], renamed["description"]) == ("throw", "Roll a die.")
        assert (await server.refused("PATCH", path, {"source_code": "def f(:"}))[0] == 400
        for method, at, body in (("PATCH", path, {}), ("POST", "/v1/tools/", {"source_code": ROLL})):
            status, detail = await server.refused(method, at, {**body, "memory_mb": 513})
            assert (status, "at most 512 MiB" in detail) == (422, True)
            status, detail = await server.refused(method, at, {**body, "timeout_s": 601})
            assert (status, "PERDURE_SANDBOX_TIMEOUT_S" in detail) == (422, True)
            status, detail = await server.refused(method, at, {**body, "network": True})
            assert (status, "give hosts such as" in detail) == (422, True)
        assert (await server.patch(path, {"network": ["API.test", "*.b.test:22"]}))["network"] == [
            "api.test",
            "*.b.test:22",
        ]
        assert "network" not in await server.patch(path, {"network": False})
        assert (await server.refused("PATCH", path, {"source_code": "def memory():\n 'M.'"}))[0] == 409
        assert (await server.get(path))["name"] == "throw"
        assert await server.delete(path) is None
        assert (await server.get(f"/v1/agents/{agent['id']}"))["tools"] == []
        assert (await server.refused("GET", path))[0] == 404
        assert (await server.refused("DELETE", path))[0] == 404
        (own,) = await server.get("/v1/tools/", name="memory_insert")
        assert (await server.refused("DELETE", f"/v1/tools/{own['id']}"))[0] == 409
        assert (await server.refused("PATCH", f"/v1/tools/{own['id']}", {"description": "x"}))[0] == 409
        kept = await server.patch(f"/v1/tools/{own['id']}", {"default_requires_approval": True, "tags": ["mine"]})
        assert (kept["default_requires_approval"], kept["tags"]) == (True, ["mine"])


async def test_a_schema_with_another_name_renames_the_tool() -> None:
    """Its function stays, so it runs as before, also after the next change."""
    async with routed() as server:
        made = await server.post("/v1/tools/", {"source_code": ROLL})
        agent = await new_agent(server, tool_ids=[made["id"]])
        path = f"/v1/tools/{made['id']}"
        renamed = await server.patch(path, {"json_schema": made["json_schema"] | {"name": "throw"}})
        assert (renamed["name"], renamed["json_schema"]["name"], renamed["source_code"]) == ("throw", "throw", ROLL)
        again = await server.patch(path, {"json_schema": renamed["json_schema"], "description": "Throw a die."})
        assert (again["name"], again["description"]) == ("throw", "Throw a die.")
        assert named(await server.get(f"/v1/agents/{agent['id']}/tools")) == ["throw"]

        ran = await server.post(f"/v1/agents/{agent['id']}/tools/throw/run", {"args": {"sides": 6}})

        assert ran["func_return"] == "x rolled 1 of 6"
        other = await server.post("/v1/tools/", {"source_code": ROLL})
        assert (other["name"], other["id"] != made["id"]) == ("roll", True)
        assert (await server.refused("PATCH", path, {"json_schema": {"name": "roll"}}))[0] == 409


async def test_an_upsert_keeps_what_it_does_not_name() -> None:
    """Tags, limits and approval of the tool that is there."""
    async with routed() as server:
        kept = {"tags": ["game"], "return_char_limit": 9, "default_requires_approval": True}
        made = await server.put("/v1/tools/", {"source_code": ROLL, **kept})
        changed = await server.put("/v1/tools/", {"source_code": ROLL.replace("min(sides, 1)", "sides")})

        assert (changed["id"], "{sides} of" in changed["source_code"]) == (made["id"], True)
        assert {name: changed[name] for name in kept} == kept
        assert (await server.put("/v1/tools/", {"source_code": ROLL, "tags": []}))["tags"] == []


async def test_built_in_tools_are_there_from_the_start() -> None:
    """Under Letta's names and types; older clients ask for them."""
    async with routed() as server:
        base = await server.post("/v1/tools/add-base-tools", None)
        types = {tool["name"]: tool["tool_type"] for tool in base}

        assert types.items() >= {spec.name: spec.tool_type for spec in MEMORY_TOOL_SPECS.values()}.items()
        assert {name for name, kind in types.items() if kind == "letta_builtin"} >= {"run_code", "web_search"}
        assert all(tool["source_code"] is None and tool["tags"] == [tool["tool_type"]] for tool in base)
        only = await server.get("/v1/tools/", return_only_letta_tools=True, limit=100)
        assert sorted(named(only)) == sorted(types)


async def test_tools_are_found_and_listed_by_pages() -> None:
    """By every parameter that the client has, repeated or with commas, both ways through all pages."""
    async with routed() as server:
        made = [
            await server.post("/v1/tools/", {"source_code": f"def {name}():\n    'Tell the {name}.'", "tags": [name]})
            for name in ("weather", "whether", "stocks")
        ]
        ids = [tool["id"] for tool in made]
        assert named(await server.get("/v1/tools/", limit=3)) == ["stocks", "whether", "weather"]
        assert named(await server.get("/v1/tools/", tool_types="custom", order="asc")) == named(made)
        assert named(await server.get("/v1/tools/", names=["stocks", "weather"])) == ["stocks", "weather"]
        assert named(await server.get("/v1/tools/", names="stocks,weather")) == ["stocks", "weather"]
        assert named(await server.get("/v1/tools/", tool_ids=ids[:2], order="asc")) == ["weather", "whether"]
        assert named(await server.get("/v1/tools/", search="HETH")) == ["whether"]
        letta = ",".join({tool["tool_type"] for tool in await server.post("/v1/tools/add-base-tools", None)})
        assert len(await server.get("/v1/tools/", exclude_tool_types=letta)) == 3
        assert await server.get("/v1/tools/count", exclude_letta_tools=True) == 3
        assert await server.get("/v1/tools/", name="nobody") == []
        for order in ("asc", "desc"):
            listed = [tool.id async for tool in server.letta.tools.list(limit=2, order=order)]
            assert len(listed) == len(set(listed)) == await server.get("/v1/tools/count")
        assert (await server.refused("GET", "/v1/tools/", after=NOBODY))[0] == 404
        assert (await server.refused("GET", "/v1/tools/", after="x"))[0] == 422
        found = await server.post("/v1/tools/search", {"query": "the weather", "search_mode": "fts"})
        assert found[0]["tool"]["name"] == "weather"
        assert ToolSearchResult.model_validate(found[0]).fts_rank == 1
        tagged = await server.post("/v1/tools/search", {"tags": ["stocks"], "tool_types": ["custom"]})
        assert [hit["tool"]["name"] for hit in tagged] == ["stocks"]


async def test_a_source_is_tried_and_its_schema_shown() -> None:
    """Nothing is stored of either."""
    async with routed() as server:
        before = await server.get("/v1/tools/count")
        schema = await server.post("/v1/tools/generate-schema", {"code": ROLL})
        assert (schema["name"], list(schema["parameters"]["properties"])) == ("roll", ["sides", "label"])
        assert (await server.refused("POST", "/v1/tools/generate-schema", {"code": "x"}))[0] == 400
        ran = await server.post("/v1/tools/run", {"source_code": ROLL, "args": {"sides": "6"}})
        assert (ran["message_type"], ran["status"]) == ("tool_return_message", "success")
        assert (ran["tool_return"], ran["stdout"]) == ("x rolled 1 of 6", ["rolling\n"])
        wrong = await server.post("/v1/tools/run", {"source_code": ROLL, "args": {"sides": "six"}})
        assert (wrong["status"], "'sides' must be of type integer" in wrong["tool_return"]) == ("error", True)
        source = "def env() -> str:\n    'Env.'\n    import os\n    return os.environ['A']\n"
        shown = await server.post("/v1/tools/run", {"source_code": source, "args": {}, "env_vars": {"A": "b"}})
        assert shown["tool_return"] == "b"
        assert await server.get("/v1/tools/count") == before


async def test_a_tool_of_an_agent_is_run_by_hand_and_by_the_agent() -> None:
    """With the agent's blocks, whose changes are ordinary edits, and its secrets."""
    async with routed(calls("remember", text="two"), says("done")) as server:
        made = await server.post("/v1/tools/", {"source_code": REMEMBER})
        blocks = [{"label": "human", "value": "Ann"}]
        agent = await new_agent(server, tool_ids=[made["id"]], memory_blocks=blocks, secrets={"K": "v"})
        path = f"/v1/agents/{agent['id']}"
        result = await server.post(f"{path}/tools/remember/run", {"args": {"text": "one"}})
        assert ToolExecutionResult.model_validate(result).status == "success"
        assert result["func_return"] == "remembered"
        assert result["agent_state"]["memory"]["blocks"][0]["value"] == "Ann; one"
        sent = await server.post(f"{path}/messages", {"input": "Remember two."})
        assert [m["tool_return"] for m in sent["messages"] if m["message_type"] == "tool_return_message"] == [
            "remembered"
        ]
        assert (await server.get(f"{path}/core-memory/blocks/human"))["value"] == "Ann; one; two"
        assert (await server.refused("POST", f"{path}/tools/none/run", {}))[0] == 404


async def test_built_in_tools_of_an_agent_are_run_by_hand() -> None:
    """As the agent's own calls: edits are stored, with who made them, and searches find what is there."""
    names = ["memory_insert", "memory", "archival_memory_insert", "archival_memory_search", "conversation_search"]
    async with routed(says("Green it is.")) as server:
        blocks = [{"label": "human", "value": "Ann"}]
        agent = await new_agent(server, tools=names, memory_blocks=blocks, include_base_tools=False)
        path = f"/v1/agents/{agent['id']}"
        await server.post(f"{path}/messages", {"input": "My favourite colour is green."})

        async def run(name: str, **arguments: Any) -> Any:
            result = await server.post(f"{path}/tools/{name}/run", {"args": arguments})
            assert ToolExecutionResult.model_validate(result).status == result["status"]
            return result

        edited = await run("memory_insert", label="human", new_string="Likes tea.")
        assert (edited["status"], edited["func_return"]) == ("success", "Ann\nLikes tea.")
        assert edited["agent_state"]["memory"]["blocks"][0]["value"] == "Ann\nLikes tea."
        made = await run("memory", command="create", path="/memories/trips", file_text="Oslo")
        assert (made["status"], (await server.get(f"{path}/core-memory/blocks/trips"))["value"]) == ("success", "Oslo")
        assert (await run("archival_memory_insert", content="The cat is called Mia."))["status"] == "success"
        assert "Mia" in (await run("archival_memory_search", query="cat"))["func_return"]
        assert "favourite colour" in (await run("conversation_search", query="green"))["func_return"]
        refused = await run("memory_insert", label="none", new_string="x")
        assert (refused["status"], "none" in refused["func_return"]) == ("error", True)
        wrong = await run("memory_insert", text="x")
        assert (wrong["status"], "new_string" in wrong["func_return"]) == ("error", True)


async def test_a_tool_that_fails_says_so_in_its_result_and_its_error_output() -> None:
    """In the words of Letta's server, whether the model or a client called it, and of memory tools too."""
    script = calls("fail"), calls("memory_replace", label="human", old_string="x", new_string="y"), says("done")
    source = "def fail() -> str:\n    'Fail.'\n    raise ValueError('no')\n"
    async with routed(*script) as server:
        made = await server.post("/v1/tools/", {"source_code": source})
        human = [{"label": "human", "value": "Ann"}]
        agent = await new_agent(server, tool_ids=[made["id"]], tools=["memory_replace"], memory_blocks=human)
        path = f"/v1/agents/{agent['id']}"
        ran = await server.post(f"{path}/tools/fail/run", {"args": {}})
        sent = await server.post(f"{path}/messages", {"input": "Go."})
        own, memory = [one for one in sent["messages"] if one["message_type"] == "tool_return_message"]

        assert own["tool_return"].startswith("Error executing function fail: ValueError: no")
        assert own["stderr"][0] == own["tool_returns"][0]["stderr"][0] == own["tool_return"]
        assert ran["stderr"][0] == own["tool_return"]
        assert memory["tool_return"].startswith("Error executing function memory_replace: ")
        assert (memory["status"], memory["stderr"]) == ("error", [memory["tool_return"]])


async def test_results_of_built_in_tools_are_shown_as_letta_shows_them() -> None:
    """Rows as Python writes them, `None` for tools without a value, and Letta's sentences about blocks."""
    script = [
        calls("archival_memory_insert", content="The sky isn't red.", tags=["sky"]),
        calls("archival_memory_search", query="sky"),
        calls("conversation_search", query="green"),
        calls("memory_finish_edits"),
        calls("store_memories", chunks=[{"start_index": 0, "end_index": 0, "context": "A wish."}]),
        calls("finish_rethinking_memory"),
        calls("search_memory", convo_keyword_queries=["green"]),
        calls("memory", command="create", path="/memories/trips", file_text="Oslo"),
        calls("memory_replace", label="trips", old_string="Rome", new_string="Bergen"),
        calls("memory_replace", label="rules", old_string="Be brief.", new_string=""),
    ]
    async with routed(says("Noted."), *script, says("Done.")) as server:
        names = sorted({call.name for reply in script for call in reply.parts if isinstance(call, ToolCall)})
        blocks = [{"label": "rules", "value": "Be brief.", "read_only": True}]
        agent = await new_agent(server, tools=names, memory_blocks=blocks)
        path = f"/v1/agents/{agent['id']}/messages"
        await server.post(path, {"input": "I like green."})
        sent = await server.post(path, {"input": "Use them."})
        texts = [m["tool_return"] for m in sent["messages"] if m["message_type"] == "tool_return_message"]
        listed = [m["tool_return"] for m in await server.get(path) if m["message_type"] == "tool_return_message"]

        assert texts == listed
        inserted, rows, found, finished, stored, rethought, looked_up, created, replaced, locked = texts
        assert {inserted, finished, stored, rethought} == {"None"}
        assert ast.literal_eval(looked_up)["messages"][0]["content"] == "I like green."
        (row,) = ast.literal_eval(rows)
        assert (row["content"], row["tags"]) == ("The sky isn't red.", ["sky"])
        assert found.startswith("{'message': 'Showing 1 results:', 'results': [{'timestamp': ")
        assert ast.literal_eval(found)["results"][0]["content"] == "I like green."
        assert created.startswith("Successfully created memory block 'trips'.")
        assert "old_string `Rome` did not appear verbatim in memory block with label `trips`." in replaced
        assert "This block is read-only and cannot be edited." in locked


async def test_the_tools_of_an_agent_are_attached_and_detached() -> None:
    """Attaching twice is no error; another organisation's or no tool at all is not found."""
    async with routed() as server:
        made = await server.post("/v1/tools/", {"source_code": ROLL})
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/tools"
        for _ in range(2):
            attached = await server.patch(f"{path}/attach/{made['id']}")
            assert named(attached["tools"]) == ["roll"]
        assert await server.get(path) == [made]
        assert named((await server.patch(f"{path}/detach/{made['id']}"))["tools"]) == []
        assert (await server.refused("PATCH", f"{path}/attach/{NOBODY}"))[0] == 404
        assert (await server.refused("PATCH", f"{path}/attach/x"))[0] == 422


async def test_a_malformed_schema_is_the_callers_error() -> None:
    """Wherever a schema is given; the answer names the place."""
    async with routed() as server:
        schema = {"name": "roll", "parameters": {"type": "object", "properties": {"sides": {"anyOf": 5}}}}
        for path in ("/v1/tools/", "/v1/tools/run"):
            body = {"source_code": ROLL, "json_schema": schema, "args": {"sides": 1}}
            status, detail = await server.refused("POST", path, body)
            assert status == 422 and "properties.sides.anyOf is 5" in detail
