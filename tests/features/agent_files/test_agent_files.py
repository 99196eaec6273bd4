"""Agent files over HTTP, as the official client sends and asks for them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from letta_client import APIStatusError

from perdure.core.errors import StoreUnavailable
from perdure.core.messages import ToolCall
from perdure.features.agent_files.messages import unpack_text
from perdure.features.files.folder_service import AsyncFolder
from perdure.library.tools.tools import AsyncTools
from perdure.testing import calls, says
from tests.server.routed import MODEL, Routed, new_agent, routed

AT = "2026-01-06T02:05:4{}.731069+00:00"
SOURCE = '''def roll(sides: int) -> int:
    """Roll a die.

    Args:
        sides: How many sides it has.
    """
    return sides
'''


def line(number: int, role: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    content = [] if text is None else [{"type": "text", "text": text, "signature": None}]
    empty: dict[str, Any] = {
        "name": None,
        "otid": None,
        "tool_calls": None,
        "tool_call_id": None,
        "tool_returns": [],
        "approvals": [],
    }
    return {
        **{"type": "message", "id": f"message-{number}", "agent_id": "agent-0", "role": role, "content": content},
        **{**empty, "created_at": AT.format(number), **more},
    }


def call(id_: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def returned(id_: str, text: str, status: str = "OK") -> dict[str, Any]:
    packed = json.dumps({"status": status, "message": text, "time": "2026-01-06 02:05:49 AM UTC+0000"})
    return {"tool_call_id": id_, "status": "success", "stdout": None, "stderr": None, "func_response": packed}


def tool(number: int, name: str, kind: str = "letta_core", source: str | None = None) -> dict[str, Any]:
    schema = {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}}
    fields = {"id": f"tool-{number}", "tool_type": kind, "name": name, "source_code": source, "source_type": "python"}
    return {**fields, "json_schema": None if source else schema, "tags": [], "metadata_": {}, "project_id": None}


def agent_file() -> dict[str, Any]:
    """A file as Letta's server writes it, with what its agents go through."""
    messages = [
        line(0, "system", "You are Loop.\n\n<memory_blocks>\n</memory_blocks>"),
        line(1, "user", json.dumps({"type": "user_message", "message": "I am Ada.", "time": "now"})),
        line(2, "assistant", "Let me see.", tool_calls=[call("c1", "roll", sides=6), call("c2", "roll", sides=8)]),
        line(3, "tool", "", tool_call_id="c1", tool_returns=[returned("c1", "4")]),
        line(4, "tool", "", tool_call_id="c2", tool_returns=[returned("c2", "broken", "Failed")]),
        line(5, "assistant", "You rolled 4, Ada."),
        line(6, "approval", tool_calls=[call("c3", "roll", sides=20)]),
        line(7, "user", "Never mind."),
    ]
    messages[5]["content"].insert(0, {"type": "reasoning", "reasoning": "Four.", "signature": "x", "is_native": True})
    agent = {
        **{"id": "agent-0", "name": "Loop", "agent_type": "letta_v1_agent", "system": "You are Loop."},
        **{"tool_ids": ["tool-0", "tool-1", "tool-2"], "block_ids": ["block-0"], "tools": [], "memory_blocks": []},
        **{"tool_rules": [{"tool_name": "roll", "type": "exit_loop"}, {"tool_name": "gone", "type": "exit_loop"}]},
        **{"tags": ["a"], "description": "I remember.", "metadata": None, "model": None, "timezone": "UTC"},
        **{"llm_config": {"model": "claude-9", "handle": "anthropic/claude-9", "context_window": 90_000}},
        **{"include_base_tools": False, "enable_sleeptime": False, "secrets": {"KEY": ""}, "source_ids": []},
        **{"in_context_message_ids": [one["id"] for one in messages], "messages": messages, "group_ids": []},
    }
    block = {"id": "block-0", "label": "human", "value": "Nobody yet.", "limit": 20_000, "read_only": False}
    server = {
        "id": "mcp_server-0",
        "server_name": "x",
        "server_type": "streamable_http",
        "server_url": "https://x.test",
    }
    return {
        **{"agents": [agent], "groups": [], "blocks": [block], "files": [], "sources": [], "mcp_servers": [server]},
        "tools": [
            tool(0, "archival_memory_insert"),
            tool(1, "roll", "custom", SOURCE),
            tool(2, "gone", "external_mcp"),
        ],
        **{"metadata": {"revision_id": "308a180244fc"}, "created_at": AT.format(9)},
    }


async def import_file(server: Routed, file: dict[str, Any], **options: Any) -> Any:
    return await server.letta.agents.import_file(file=("loop.af", json.dumps(file).encode()), **options)


async def test_a_file_of_letta_becomes_an_agent_that_goes_on() -> None:
    """With its memory, tools and history, each call with its result; what is not here is said."""
    async with routed(says("Hello again.")) as server:
        imported = await import_file(server, agent_file())
        (agent_id,) = imported.agent_ids
        warnings = (imported.model_extra or {})["warnings"]
        assert [warning.split(" ")[:2] for warning in warnings] == [
            ["`mcp_servers`", "of"],
            ["tool", "'gone'"],
            ["agent", "'Loop'"],
            ["agent", "'Loop'"],
        ]
        assert "agent 'Loop' lacks values of KEY, which no file holds" in warnings

        state: Any = await server.letta.agents.retrieve(agent_id)
        assert (state.name, state.system, state.tags, state.model) == ("Loop", "You are Loop.", ["a"], MODEL)
        assert [(block.label, block.value) for block in state.blocks] == [("human", "Nobody yet.")]
        assert {one.name for one in state.tools} == {"archival_memory_insert", "roll"}
        assert [rule.tool_name for rule in state.tool_rules or ()] == ["roll"]
        assert state.llm_config.context_window == 90_000

        history: list[Any] = [one async for one in await server.letta.agents.messages.list(agent_id, order="asc")]
        shown = [(one.message_type, getattr(one, "content", None)) for one in history]
        assert ("user_message", "I am Ada.") in shown
        assert ("assistant_message", "You rolled 4, Ada.") in shown
        returns = [one.tool_returns or () for one in history if one.message_type == "tool_return_message"]
        assert [(one.tool_return, one.status) for some in returns for one in some] == [
            *(("4", "success"), ("broken", "error")),
            ("The agent file holds no result of this call.", "error"),
        ]
        assert str(min(one.date for one in history if one.message_type != "system_message"))[:10] == "2026-01-06"

        answer: Any = await server.letta.agents.messages.create(agent_id, input="Who am I?")
        assert answer.messages[-1].content == "Hello again."


async def test_the_model_is_shown_the_history_in_order() -> None:
    """Each answer with calls is followed by a result of every one of them."""
    async with routed(says("Ada.")) as server:
        (agent_id,) = (await import_file(server, agent_file())).agent_ids
        await server.post(f"/v1/agents/{agent_id}/messages", {"input": "Who am I?"})
        messages = await server.library.agent_of(agent_id).messages(
            conversation=None, limit=100, before_seq=None, after_seq=None, newest_first=False, reset=False
        )
        said = [message for message in messages if message.kind == "message" and message.role != "system"]
        open_calls: list[str] = []
        for message in said:
            assert not open_calls or message.role == "tool"
            open_calls += [part.call_id for part in message.parts if isinstance(part, ToolCall)]
            for result in message.results:
                open_calls.remove(result.call_id)
        assert [message.role for message in said][:5] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_what_is_exported_and_imported_is_exported_as_it_was() -> None:
    """But for times and the ids of the file's author."""
    script = (calls("core_memory_append", label="human", content="Ada"), says("Done."))
    async with routed(*script) as server:
        made = await server.post("/v1/tools/", {"source_code": SOURCE})
        first = await new_agent(
            server,
            name="Ann",
            memory_blocks=[{"label": "human", "value": "", "limit": 500, "description": "d"}],
            **{"tool_ids": [made["id"]], "tools": ["core_memory_append"], "tags": ["x"], "metadata": {"a": 1}},
            **{"auto_recall": True, "secrets": {"KEY": "hidden value"}},
        )
        await server.post(f"/v1/agents/{first['id']}/messages", {"input": "I am Ada."})
        exported = await server.letta.agents.export_file(first["id"])
        assert "hidden value" not in exported
        file = json.loads(exported)
        twice = json.dumps(exported).encode()  # as programs write it that take it for an object
        (agent_id,) = (await server.letta.agents.import_file(file=("ann.af", twice))).agent_ids
        again = json.loads(await server.letta.agents.export_file(agent_id))

    for one in (file, again):
        del one["created_at"]
        del one["agents"][0]["messages"][0]["created_at"]
        for values in one["metadata"]["perdure"]["agents"]["agent-0"]["block_values"].values():
            del values[0]["created_at"]  # with its first value the block is made anew
    for name in ("secrets", "tool_exec_environment_variables"):  # an import sets those that come with it
        assert file["agents"][0].pop(name) == {"KEY": ""}
        assert again["agents"][0].pop(name) == {}
    assert again == file
    assert [one["role"] for one in file["agents"][0]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert file["agents"][0]["in_context_message_ids"] == [f"message-{number}" for number in range(5)]


async def test_a_file_takes_the_client_s_skills() -> None:
    """Beside all that the other export has; the file can be imported."""
    async with routed() as server:
        agent = await new_agent(server, name="Ann")
        path = f"/v1/agents/{agent['id']}/export"
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "Hello."})
        skills = [{"name": "slack", "files": {"SKILL.md": "Post."}, "source_url": None}]
        skills += [{"name": "pdf", "files": None, "source_url": "anthropic:pdf"}]
        text = await server.letta.post(path, cast_to=str, body={"skills": skills})
        plain, scrubbed = [await server.http.post(path, json=body) for body in (None, {"scrub_messages": True})]
        file, own = json.loads(text), json.loads(await server.letta.agents.export_file(agent["id"]))
        (again,) = (await server.letta.agents.import_file(file=("ann.af", text.encode()))).agent_ids

        assert (file.pop("skills"), own.pop("skills")) == (skills, [])
        assert file | {"created_at": ""} == own | {"created_at": ""}
        assert json.loads(plain.text) | {"created_at": ""} == own | {"created_at": "", "skills": []}
        assert json.loads(scrubbed.text)["agents"][0]["messages"] == []
        assert (await server.letta.agents.retrieve(again)).name.startswith("Ann")
        assert (await server.refused("POST", path, {"skills": [{"files": {}}]}))[0] == 422


async def test_images_come_with_their_messages() -> None:
    """Also where a message is nothing but an image. One whose bytes are elsewhere is told."""
    bytes_ = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": bytes_}}
    async with routed(says("A dot."), says("The same.")) as server:
        first = await new_agent(server)
        body = {"messages": [{"role": "user", "content": [image]}]}
        await server.post(f"/v1/agents/{first['id']}/messages", body)
        file = json.loads(await server.letta.agents.export_file(first["id"]))
        file["agents"][0]["messages"][-1]["content"].append(
            {"type": "image", "source": {"type": "letta", "file_id": "x"}}
        )
        made = await server.letta.agents.import_file(file=("a.af", json.dumps(file).encode()))
        shown = await server.get(f"/v1/agents/{made.agent_ids[0]}/messages")

    (message,) = [one for one in shown if one["message_type"] == "user_message"]
    assert message["content"][0]["source"]["data"] == bytes_
    assert "image" in str(made)


async def test_images_in_results_of_tools_come_too() -> None:
    """After export and import the same history is shown; also by a file that has them in the results themselves."""
    bytes_ = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": bytes_}}
    tool = {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}
    async with routed(calls("look"), says("A dot.")) as server:
        first = await new_agent(server)
        path = f"/v1/agents/{first['id']}/messages"
        await server.post(path, {"input": "Look.", "client_tools": [tool]})
        answer = {"type": "tool", "tool_call_id": "call_1_0", "tool_return": [{"type": "text", "text": "Here."}, image]}
        await server.post(path, {"messages": [{"type": "approval", "approvals": [answer | {"status": "success"}]}]})
        file = json.loads(await server.letta.agents.export_file(first["id"]))
        within = copy.deepcopy(file)
        (line,) = [one for one in within["agents"][0]["messages"] if one["role"] == "tool"]
        (returned,) = line["tool_returns"]
        returned["func_response"], line["content"] = [{"type": "text", "text": returned["func_response"]}, image], []
        without = copy.deepcopy(file)
        (line,) = [one for one in without["agents"][0]["messages"] if one["role"] == "tool"]
        line["content"][-1]["source"] = {"type": "letta", "file_id": "x"}
        made = [await import_file(server, one) for one in (file, within, without)]
        agents = [first["id"], *(one.agent_ids[0] for one in made)]
        shown = [await server.get(f"/v1/agents/{agent}/messages") for agent in agents]

    lines = [one for line in shown for one in line if one["message_type"] == "tool_return_message"]
    returns = [one["tool_returns"][0]["tool_return"] for one in lines]
    warned = ["image" in str((one.model_extra or {})["warnings"]) for one in made]
    assert returns[0][-1]["source"]["data"] == bytes_
    assert returns == [returns[0]] * 3 + ["Here."]
    assert warned == [False, False, True]


async def test_what_a_person_says_of_memory_blocks_is_no_compiled_prompt() -> None:
    """Only the prompt of the agent with its blocks is left out, wherever it stands."""
    said = "Explain what <memory_blocks> means."
    async with routed(says("Blocks.")) as server:
        first = await new_agent(server, system="You are Loop.")
        body = {"messages": [{"role": "system", "content": said}, {"role": "user", "content": said}]}
        await server.post(f"/v1/agents/{first['id']}/messages", body)
        file = json.loads(await server.letta.agents.export_file(first["id"]))
        lines = file["agents"][0]["messages"]
        anew = [{"type": "text", "text": "You are Loop.\n\n<memory_blocks>\n</memory_blocks>"}]
        lines.append({**lines[0], "id": "message-9", "content": anew})
        made = await import_file(server, file)
        shown = await server.get(f"/v1/agents/{made.agent_ids[0]}/messages", order="asc")

    texts = [(one["message_type"], one["content"]) for one in shown[1:]]
    assert texts == [("system_message", said), ("user_message", said), ("assistant_message", "Blocks.")]


def test_of_the_first_layout_only_what_somebody_said_is_read() -> None:
    """Also with a name or a place beside it, and not what the engine told itself."""
    at = "2024-01-01 10:00:00 AM"
    for more in ({}, {"location": "Oslo"}, {"name": "Bob"}):
        assert unpack_text(json.dumps({"type": "user_message", "message": "hi", "time": at} | more)) == "hi"
    for kind in ("login", "heartbeat", "system_alert"):
        assert unpack_text(json.dumps({"type": kind, "message": "x", "time": at})) == ""
    for text in ('{"type": "login"}', '{"a": 1}', "hi"):
        assert unpack_text(text) == text


async def test_options_of_an_import() -> None:
    """A name, a suffix, secrets, tools that are replaced, and no messages."""
    async with routed() as server:
        file = agent_file()
        (plain,) = (await import_file(server, file, strip_messages=True, append_copy_suffix=True)).agent_ids
        assert [one["message_type"] for one in await server.get(f"/v1/agents/{plain}/messages")] == ["system_message"]
        assert (await server.letta.agents.retrieve(plain)).name == "Loop_copy"

        file["tools"][1]["source_code"] = SOURCE.replace("return sides", "return 1")
        kept = await import_file(server, file, name="Other", secrets=json.dumps({"KEY": "v"}))
        assert "tool 'roll' was here already and stays as it is" in (kept.model_extra or {})["warnings"]
        state = await server.letta.agents.retrieve(kept.agent_ids[0])
        assert (state.name, [one.key for one in state.secrets or ()]) == ("Other", ["KEY"])
        assert next(one for one in state.tools if one.name == "roll").source_code == SOURCE
        changed = await import_file(server, file, override_existing_tools=True, model=MODEL)
        state = await server.letta.agents.retrieve(changed.agent_ids[0])
        assert "return 1" in (next(one for one in state.tools if one.name == "roll").source_code or "")

        scrubbed = json.loads(await server.letta.agents.export_file(changed.agent_ids[0], scrub_messages=True))
        assert scrubbed["agents"][0]["messages"] == []


async def test_agents_of_one_file_share_blocks() -> None:
    """What the file holds once is made once."""
    async with routed() as server:
        file = agent_file()
        other = copy.deepcopy(file["agents"][0]) | {"id": "agent-1", "name": "Second", "messages": []}
        file["agents"].append(other)
        ids = (await import_file(server, file)).agent_ids
        blocks = [(await server.letta.agents.retrieve(one)).blocks[0].id for one in ids]
        assert len(set(ids)) == 2
        assert len(set(blocks)) == 1


def _without(*path: Any) -> Any:
    def change(file: dict[str, Any]) -> None:
        place: Any = file
        for name in path[:-1]:
            place = place[name]
        del place[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "says_what"),
    [
        (_without("agents"), "neither a list `agents`"),
        (_without("agents", 0), "has no agents"),
        (_without("blocks", 0), "'block-0', which the file does not hold"),
        (lambda file: file.update(tools=3), "`tools` must be a list"),
        (lambda file: file.update(blocks=["x"]), "`blocks` must be a list"),
        (lambda file: file["agents"][0].update(messages=[3]), "`messages of an agent` must be a list"),
        (lambda file: file["agents"][0]["messages"][1].update(created_at="then"), "messages[1] has no time"),
        (lambda file: file["agents"][0].update(timezone=3), "timezone"),
        (lambda file: file["blocks"][0].update(label=""), "label"),
    ],
)
async def test_a_file_that_is_wrong_makes_nothing(change: Any, says_what: str) -> None:
    """The answer says what is wrong with it; also if the second agent is the wrong one."""
    async with routed() as server:
        file = agent_file()
        change(file)
        with pytest.raises(APIStatusError) as refused:
            await import_file(server, file)
        assert refused.value.status_code in (400, 422)
        assert says_what in refused.value.response.text
        assert await server.get("/v1/agents/count") == 0


async def test_what_was_made_before_an_agent_that_fails_is_deleted() -> None:
    """Agents, blocks and tools; a tool that was here keeps its source."""
    async with routed() as server:
        file = agent_file()
        await server.post("/v1/tools/", {"source_code": SOURCE.replace("roll", "kept")})
        file["tools"].append(
            tool(3, "kept", "custom", SOURCE.replace("roll", "kept").replace("return sides", "return 1"))
        )
        file["agents"][0]["tool_ids"].append("tool-3")
        file["agents"].append({**file["agents"][0], "id": "agent-1", "timezone": "Nowhere/Land"})
        with pytest.raises(APIStatusError):
            await import_file(server, file, override_existing_tools=True)
        assert await server.get("/v1/agents/count") == 0
        assert await server.get("/v1/blocks/") == []
        (kept,) = [one for one in await server.get("/v1/tools/", limit=200) if one["tool_type"] == "custom"]
        assert "return sides" in kept["source_code"]


ODD: tuple[dict[str, Any], ...] = (
    *({"tool_ids": 5}, {"tool_ids": [{}]}, {"block_ids": [[]]}, {"tool_rules": 5}, {"tool_rules": [{"tool_name": []}]}),
    *({"messages": [line(1, "assistant", tool_calls=5)]}, {"messages": [line(1, "tool", tool_returns=5)]}),
    *({"messages": [line(1, "user", approvals=True)]}, {"messages": [line(1, "user", "x" * 600_000)]}),
)


@pytest.mark.parametrize("change", ODD, ids=lambda change: str(change)[:40])
async def test_an_odd_file_is_refused(change: dict[str, Any]) -> None:
    async with routed() as server:
        file = agent_file()
        file["agents"][0].update(change)
        with pytest.raises(APIStatusError) as refused:
            await import_file(server, file)
        assert refused.value.status_code == 400


async def test_calls_and_results_stay_pairs() -> None:
    """Also where ids come again or are missing, a result comes late, or a person denied the call."""
    async with routed(says("Fine.")) as server:
        file = agent_file()
        messages = [
            line(0, "assistant", tool_calls=[call("c", "roll"), call("c", "roll")]),
            line(1, "tool", tool_returns=[returned("c", "first")]),
            line(2, "user", "Wait."),
            line(3, "tool", tool_returns=[returned("c", "second")]),
            line(4, "assistant", tool_calls=[call("c", "roll"), call("d", "roll")]),
            line(5, "tool", tool_returns=[returned("c", "third")]),
            line(
                6, "approval", approvals=[{"type": "approval", "tool_call_id": "d", "approve": False, "reason": "no"}]
            ),
        ]
        for one in messages:
            del one["id"]
        file["agents"][0]["messages"] = messages
        (agent_id,) = (await import_file(server, file)).agent_ids
        answer: Any = await server.letta.agents.messages.create(agent_id, input="Well?")
        assert answer.messages[-1].content == "Fine."
        stored = json.loads(await server.letta.agents.export_file(agent_id))["agents"][0]["messages"]
    results = [json.loads(one["content"][0]["text"])["message"] for one in stored if one["role"] == "tool"]
    assert results == ["first", "second", "third", "A person denied this call. no"]


async def test_texts_come_back_as_they_were() -> None:
    """Also those that look like Letta's own packing."""
    odd = [
        '{"type": "user_message", "message": "inner", "time": "now"}',
        '{"status": "Failed", "message": "x", "rows": []}',
    ]
    async with routed(calls("lookup"), says("half \ud800")) as server:
        agent = await new_agent(server)
        await server.post_raw(f"/v1/agents/{agent['id']}/messages", {"input": odd[0]})
        texts = []
        for _ in range(2):
            exported = json.loads(await server.letta.agents.export_file(agent["id"]))
            texts.append([one["content"] for one in exported["agents"][0]["messages"]])
            (agent["id"],) = (await import_file(server, exported)).agent_ids
    assert texts[0] == texts[1]


async def test_a_file_reaches_no_tool_but_by_its_name_and_type() -> None:
    async with routed() as server:
        made = await server.post("/v1/tools/", {"source_code": SOURCE})
        for name in (made["id"], "roll"):
            file = agent_file()
            file["tools"][1] = tool(1, name, "letta_core")
            (agent_id,) = (await import_file(server, file)).agent_ids
            assert {one.name for one in (await server.letta.agents.retrieve(agent_id)).tools} == {
                "archival_memory_insert"
            }


async def test_what_is_no_file_is_refused() -> None:
    async with routed() as server:
        for content, status in ((b"{", 400), (b'{"core_memory": {}}', 400), (b"[]", 400)):
            with pytest.raises(APIStatusError) as refused:
                await server.letta.agents.import_file(file=("x.af", content))
            assert refused.value.status_code == status
        with pytest.raises(APIStatusError) as refused:
            await import_file(server, agent_file(), secrets="[1]")
        assert "secrets must be a JSON object" in refused.value.response.text
        bare = await server.http.post("/v1/agents/import", headers={"x-requested-with": "tests"}, data={"name": "x"})
        assert bare.status_code in (415, 422)
        legacy = await server.refused(
            "GET", f"/v1/agents/{(await new_agent(server))['id']}/export", use_legacy_format=True
        )
        assert legacy[0] == 422


def _with_folders() -> dict[str, Any]:
    """A file whose two agents have a folder together; one of its files has no text."""
    file = agent_file()
    file["sources"] = [{"id": "source-0", "name": "docs", "description": "d", "instructions": None, "metadata": None}]
    file["files"] = [
        {"id": "file-0", "source_id": "source-0", "file_name": "garden.md", "content": "The quince is in bed 4."},
        {"id": "file-1", "source_id": "source-0", "file_name": "old/boiler.pdf", "content": "# Boiler\n\n1.4 bar."},
        {"id": "file-2", "source_id": "source-0", "file_name": "empty.pdf", "content": None},
    ]
    first = file["agents"][0]
    first["source_ids"] = ["source-0"]
    file["agents"].append(copy.deepcopy(first) | {"id": "agent-1", "name": "Second", "messages": []})
    return file


async def _texts_of(server: Routed, agent_id: str) -> dict[str, str]:
    """Folder and file -> text, of all folders of an agent."""
    found = {}
    for folder in await server.get(f"/v1/agents/{agent_id}/folders"):
        await server.library.folders.by_id(folder["id"]).wait()
        for file in await server.get(f"/v1/folders/{folder['id']}/files", include_content=True):
            found[f"{folder['name']}: {file['file_name']}"] = file["content"]
    return found


def first_layout() -> dict[str, Any]:
    """The same file as Letta's first servers wrote it."""
    file = agent_file()
    (agent,) = file["agents"]
    lines = [
        {**one, "tool_returns": [{"status": "success"}] if one["role"] == "tool" else []} for one in agent["messages"]
    ]
    for one, packed in ((lines[3], returned("c1", "4")), (lines[4], returned("c2", "broken", "Failed"))):
        one["content"] = [{"type": "text", "text": packed["func_response"]}]
    blocks = [{**block, "metadata_": {"a": 1}, "template_name": None} for block in file["blocks"]]
    gone = (
        "id",
        "tool_ids",
        "block_ids",
        "memory_blocks",
        "source_ids",
        "in_context_message_ids",
        "group_ids",
        "secrets",
    )
    return {
        **{name: value for name, value in agent.items() if name not in gone},
        **{
            "core_memory": blocks,
            "tools": file["tools"],
            "messages": lines,
            "metadata_": {"b": 2},
            "version": "0.6.47",
        },
        **{"tags": [{"tag": "a"}], "in_context_message_indices": [0, 1], "tool_exec_environment_variables": []},
        "tool_rules": [{"tool_name": "roll", "type": "TerminalToolRule"}],
    }


async def test_a_file_of_the_first_layout_becomes_the_same_agent() -> None:
    async with routed() as server:
        found = []
        for file in (agent_file(), first_layout()):
            imported = await import_file(server, file)
            (agent_id,) = imported.agent_ids
            agent = await server.get(f"/v1/agents/{agent_id}")
            messages = await server.get(f"/v1/agents/{agent_id}/messages", order="asc")
            values = [(block["label"], block["value"]) for block in agent["blocks"]]
            texts = [(one["message_type"], one.get("content"), one.get("tool_return")) for one in messages[1:]]
            fields = [agent[name] for name in ("name", "system", "description", "tags", "tool_rules", "agent_type")]
            found.append((values, texts, fields, [tool["name"] for tool in agent["tools"]]))

        assert found[0] == found[1]
        assert agent["metadata"] == {"b": 2}


@pytest.mark.parametrize(
    ("members", "manager"), [(["agent-0"], "agent-0"), (["agent-0", "agent-1"], "agent-0"), (["agent-1"], None)]
)
async def test_no_agent_is_its_own_companion(members: list[str], manager: str | None) -> None:
    """The file is refused, for nothing of it would be made."""
    async with routed() as server:
        file = agent_file()
        file["agents"].append({**file["agents"][0], "id": "agent-1"})
        group = {"manager_type": "sleeptime", "manager_agent_id": manager}
        file["groups"] = [{"id": "group-0", "agent_ids": members, "manager_config": group, "description": "x"}]
        with pytest.raises(APIStatusError) as refused:
            await import_file(server, file)

        assert refused.value.status_code == 400
        assert "is the companion of" in refused.value.response.text
        assert await server.get("/v1/agents/count") == 0


async def test_folders_come_with_the_texts_of_their_files() -> None:
    """A folder of the same name that is here stays as it is, and what comes goes out again."""
    async with routed() as server:
        here = await server.post("/v1/folders/", {"name": "docs"})
        imported = await import_file(server, _with_folders())
        expected = {
            "docs (2): garden.md": "The quince is in bed 4.",
            "docs (2): old/boiler.pdf.md": "# Boiler\n\n1.4 bar.",
        }
        for agent_id in imported.agent_ids:
            assert await _texts_of(server, agent_id) == expected
            assert "open_files" in {one.name for one in (await server.letta.agents.retrieve(agent_id)).tools}
        warnings = (imported.model_extra or {})["warnings"]
        assert any(warning.startswith("1 of `files` are left out") for warning in warnings)
        assert await server.get(f"/v1/folders/{here['id']}/files") == []
        assert await server.get("/v1/folders/count") == 2

        exported = json.loads(await server.letta.agents.export_file(imported.agent_ids[0]))
        (agent_id,) = (await import_file(server, exported)).agent_ids
        assert await _texts_of(server, agent_id) == {
            f"docs (2) (2): {name.removeprefix('docs (2): ')}": text for name, text in expected.items()
        }


async def test_folders_of_an_import_that_fails_are_deleted() -> None:
    async with routed() as server:
        file = _with_folders()
        file["agents"][1]["timezone"] = "Nowhere/Land"
        with pytest.raises(APIStatusError):
            await import_file(server, file)
        assert await server.get("/v1/folders/") == []
        assert await server.get("/v1/agents/count") == 0


async def test_an_import_that_fails_late_leaves_neither_folders_nor_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the store fails while the files arrive, or after the last agent is made."""
    file = _with_folders()
    file["groups"] = [{"id": "group-0", "agent_ids": ["agent-0", "agent-1"], "description": "", "manager_config": None}]

    async def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the disk is gone")

    for kind, verb in ((AsyncFolder, "upload"), (AsyncTools, "put")):
        async with routed() as server:
            await server.post("/v1/tools/", {"source_code": SOURCE.replace("return sides", "return 1")})
            with monkeypatch.context() as patch:
                patch.setattr(kind, verb, fail)
                with pytest.raises(APIStatusError):
                    await import_file(server, file, override_existing_tools=True)
            for path in ("/v1/folders/", "/v1/groups/", "/v1/agents/", "/v1/blocks/"):
                assert await server.get(path) == [], path


async def test_groups_come_with_their_agents() -> None:
    """But for those that this server has not."""
    async with routed() as server:
        file = _with_folders()
        rule = {"manager_type": "supervisor", "manager_agent_id": "agent-0", "max_turns": None}
        group = {"id": "group-0", "agent_ids": ["agent-1"], "description": "A pair", "shared_block_ids": ["block-0"]}
        file["groups"] = [
            group | {"manager_config": rule},
            group | {"id": "group-1", "manager_config": {"manager_type": "swarm"}},
        ]
        imported = await import_file(server, file)
        (made,) = await server.get("/v1/groups/")
        loop, second = imported.agent_ids
        assert (made["manager_type"], made["manager_agent_id"], made["agent_ids"]) == ("supervisor", loop, [second])
        (block,) = (await server.letta.agents.retrieve(loop)).blocks
        assert (made["description"], made["shared_block_ids"]) == ("A pair", [block.id])
        assert any("swarm" in warning for warning in (imported.model_extra or {})["warnings"])

        file["groups"][0]["agent_ids"] = ["agent-7"]
        with pytest.raises(APIStatusError, match="a group has 'agent-7', which the file does not hold"):
            await import_file(server, file)


async def test_a_companion_of_a_file_is_made_with_its_agent() -> None:
    async with routed() as server:
        file = _with_folders()
        rule = {"manager_type": "sleeptime", "manager_agent_id": "agent-0", "sleeptime_agent_frequency": 7}
        file["groups"] = [{"id": "group-0", "agent_ids": ["agent-1"], "description": "", "manager_config": rule}]
        file["agents"][1]["agent_type"] = "sleeptime_agent"
        imported = await import_file(server, file)
        (agent_id,) = imported.agent_ids
        (group,) = await server.get("/v1/groups/")
        assert (group["manager_agent_id"], len(group["agent_ids"])) == (agent_id, 1)
        assert group["sleeptime_agent_frequency"] == 7
        assert any("'Second' is made anew" in warning for warning in (imported.model_extra or {})["warnings"])
