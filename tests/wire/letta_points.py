"""What users of each generation of the official client met first: `python letta_points.py URL MODEL MCP_URL`.

It runs with whichever `letta_client` is on the path, those before 1.0 included, whose methods have other names. Each
point stands in a function of its own; all that fail are printed. What the agent is told orders what the model does: the
JSON after `!!` holds its answers (see `tests.wire.obedient`).
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import letta_client

CLIENT: Any = letta_client  # of no one version
VERSION = importlib.metadata.version("letta-client")
IS_OLD = VERSION.startswith("0.")
COUNT = 5
SOURCE = 'def {0}(x: str) -> str:\n    """Do it.\n\n    Args:\n        x (str): value\n    """\n    {1}\n'
ODD_SCHEMAS: list[dict[str, Any]] = [
    {"properties": {"x": {"type": "array"}}},
    {"properties": {"$filter": {"type": "string"}}},
    {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
]


def order(*answers: Any) -> str:
    """A message that orders these answers of the model: texts, or lists of (tool, arguments)."""
    return f"go !!{json.dumps(answers)}"


class User:
    """A user of the client: what both generations can do, by one name."""

    def __init__(self, url: str, model: str, mcp_url: str) -> None:
        arguments: dict[str, Any] = {"token": None} if IS_OLD else {"api_key": "none", "max_retries": 0}
        self.client: Any = CLIENT.Letta(base_url=url, timeout=30, **arguments)
        self.model, self.mcp_url = model, mcp_url
        self.http = httpx.Client(base_url=url, timeout=30, trust_env=False)
        self.mark = f"v{VERSION.replace('.', '_')}_"
        """What keeps the names of things apart from those of other clients."""

    def agent(self, **fields: Any) -> Any:
        fields = {"model": self.model, "memory_blocks": [{"label": "human", "value": "x"}]} | fields
        return self.client.agents.create(**fields)

    def tool(self, name: str, body: str = "return x", **fields: Any) -> Any:
        return self.client.tools.create(source_code=SOURCE.format(self.mark + name, body), **fields)

    def link(self, what: str, verb: str, agent_id: str, id_: str) -> None:
        """Attach or detach one of the agent's blocks, tools, folders or archives."""
        method = getattr(getattr(self.client.agents, what), verb)
        if IS_OLD:
            method(agent_id, id_)
        else:
            method(id_, agent_id=agent_id)

    def send(self, agent_id: str, text: str, **message: Any) -> Any:
        messages = [{"role": "user", "content": text, **message}]
        return self.client.agents.messages.create(agent_id, messages=messages)

    def stream(self, agent_id: str, text: str) -> list[Any]:
        messages = self.client.agents.messages
        method = messages.create_stream if IS_OLD else messages.stream
        return list(method(agent_id, messages=[{"role": "user", "content": text}], stream_tokens=True))

    def system_message(self, agent_id: str) -> str:
        """The stored system message."""
        return str(next(iter(self.client.agents.messages.list(agent_id))).content)


def shown(messages: Any) -> list[tuple[str, Any]]:
    """(Type, what it says) of messages of an agent."""
    fields = {"assistant_message": "content", "tool_return_message": "tool_return", "user_message": "content"}
    return [(one.message_type, getattr(one, fields.get(one.message_type, ""), None)) for one in messages]


def refused(call: Callable[[], Any]) -> str:
    """What the client's error says. Raises: AssertionError: there is none."""
    try:
        call()
    except Exception as error:
        return f"{getattr(error, 'status_code', '')} {error}"
    raise AssertionError("it was taken")


def pages(method: Callable[..., Any], **arguments: Any) -> Iterator[Any]:
    """The items of a list in pages of two: the newer clients turn them, users of the older ones do."""
    if not IS_OLD:
        yield from method(limit=2, **arguments)
        return
    after: dict[str, Any] = {}
    while page := list(method(limit=2, **arguments, **after)):
        yield from page
        after = {"after": page[-1].id}


def things_are_deleted_while_they_are_listed(user: User) -> None:
    client, mark = user.client, user.mark
    owner = user.agent(name=f"{mark}owner").id
    names = [f"{mark}d{number}" for number in range(COUNT)]
    kinds: dict[str, tuple[Callable[[int], Any], Callable[[], Iterator[Any]], Callable[[str], Any]]] = {
        "agents": (
            lambda number: user.agent(name=names[number], tags=[mark]),
            lambda: pages(client.agents.list, tags=[mark]),
            client.agents.delete,
        ),
        "blocks": (
            lambda number: client.blocks.create(label=mark, value=str(number)),
            lambda: pages(client.blocks.list, label=mark),
            client.blocks.delete,
        ),
        "tools": (
            lambda number: user.tool(f"d{number}"),
            lambda: pages(client.tools.list, names=names),
            client.tools.delete,
        ),
        "passages": (
            lambda number: client.agents.passages.create(owner, text=f"text {number}")[0],
            lambda: (
                pages(client.agents.passages.list, agent_id=owner) if IS_OLD else client.agents.passages.list(owner)
            ),
            lambda id_: (
                client.agents.passages.delete(owner, id_)
                if IS_OLD
                else client.agents.passages.delete(id_, agent_id=owner)
            ),
        ),
    }
    if hasattr(client, "archives"):
        kinds["archives"] = (
            lambda number: client.archives.create(name=names[number]),
            lambda: pages(client.archives.list),
            client.archives.delete,
        )
    for kind, (make, listed, delete) in kinds.items():
        made = {str(make(number).id) for number in range(COUNT)}
        seen = []
        for one in listed():
            seen.append(str(one.id))
            if one.id in made:
                delete(one.id)
        assert made <= set(seen) and len(seen) == len(set(seen)), (kind, made, seen)
        assert not made & {str(one.id) for one in listed()}, kind


def things_are_detached_while_they_are_listed(user: User) -> None:
    client = user.client
    agent = user.agent(name=f"{user.mark}detach", include_base_tools=False, memory_blocks=[]).id
    makers: dict[str, Callable[[int], Any]] = {
        "blocks": lambda number: client.blocks.create(label=f"l{number}", value="v"),
        "tools": lambda number: user.tool(f"l{number}"),
        "folders": lambda number: client.folders.create(name=f"{user.mark}l{number}"),
    }
    for kind, make in makers.items():
        listed = getattr(client.agents, kind).list
        made = [str(make(number).id) for number in range(COUNT)]
        for id_ in made:
            user.link(kind, "attach", agent, id_)
        seen = []
        for one in listed(agent) if IS_OLD else listed(agent, limit=2):  # the older one's have no pages
            seen.append(str(one.id))
            user.link(kind, "detach", agent, one.id)
        assert sorted(seen) == sorted(made), (kind, made, seen)
        assert list(listed(agent)) == []


def tools_of_an_mcp_server_have_its_names(user: User) -> None:
    client, name = user.client, f"{user.mark}mcp"
    if IS_OLD:
        config = CLIENT.StreamableHttpServerConfig(server_name=name, server_url=user.mcp_url)
        client.tools.add_mcp_server(request=config)
        names = [tool.name for tool in client.tools.list_mcp_tools_by_server(name)]
        tool = client.tools.add_mcp_tool(name, "add")
    else:
        config = {"mcp_server_type": "streamable_http", "server_url": user.mcp_url}
        server = client.mcp_servers.create(server_name=name, config=config)
        found = {tool.name: tool for tool in client.mcp_servers.tools.list(server.id)}
        names, tool = list(found), found["add"]
    assert {"add", "look"} <= set(names), names
    agent = user.agent(name=name).id
    user.link("tools", "attach", agent, tool.id)
    (listed,) = [one.name for one in client.agents.tools.list(agent) if one.id == tool.id]
    said = shown(user.send(agent, order([(f"{name}__add", {"a": 1, "b": 2})])).messages)  # as models know it
    assert listed == "add" and ("tool_return_message", "3") in said, (listed, said)


def files_of_a_folder_are_blocks(user: User) -> None:
    client = user.client
    folder = client.folders.create(name=f"{user.mark}files", description="About boilers", instructions="Quote.")
    client.folders.files.upload(folder.id, file=("boiler.txt", b"Bleed it in October.\n" * 40))
    agent = user.agent(name=f"{user.mark}files").id
    user.link("folders", "attach", agent, folder.id)
    deadline = time.monotonic() + 20
    while (file := next(iter(client.folders.files.list(folder.id)))).processing_status != "completed":
        assert time.monotonic() < deadline, file
        time.sleep(0.05)
    assert (file.file_name, file.original_file_name) == ("boiler.txt", "boiler.txt")
    assert file.total_chunks == file.chunks_embedded >= 1, file
    (block,) = client.agents.retrieve(agent).memory.file_blocks
    assert block.file_id == file.id and block.is_open and "October" in block.value, block
    user.send(agent, "hello")
    said = user.system_message(agent)
    for line in (
        "<file_limits>\n- current_files_open=1\n- max_files_open=",
        f'<directory name="{folder.name}">\n<description>About boilers</description>\n<instructions>Quote.</instr',
        f'<file status="open" name="{folder.name}/boiler.txt">\n[Viewing file start (out of 40 lines)]\n1: Bleed it',
    ):
        assert line in said, (line, said)


def an_error_of_a_tool_is_in_stderr(user: User) -> None:
    source = SOURCE.format("boom", 'print("out"); raise ValueError("boom: " + x)')
    if IS_OLD:
        ran = user.client.tools.run_tool_from_source(source_code=source, args={"x": "y"}).dict()
    else:
        ran = user.http.post("/v1/tools/run", json={"source_code": source, "args": {"x": "y"}}).json()
    assert (ran["status"], ran["stdout"]) == ("error", ["out\n"]), ran
    assert "ValueError: boom: y" in ran["stderr"][0], ran


def skills_stay_in_the_system_message(user: User) -> None:
    agent = user.agent(name=f"{user.mark}skills").id
    skills = [{"name": "pdf", "description": "Make PDFs.", "location": "/skills/pdf"}]
    body = {"messages": [{"role": "user", "content": "hello"}], "client_skills": skills}
    user.http.post(f"/v1/agents/{agent}/messages", json=body).raise_for_status()
    assert "/skills/pdf" in user.system_message(agent)
    user.send(agent, "hello again")
    assert "/skills/pdf" in user.system_message(agent)


def an_odd_schema_stops_no_agent(user: User) -> None:
    """The test looks at what the model was sent."""
    names = [f"{user.mark}odd{number}" for number in range(len(ODD_SCHEMAS))]
    tools = []
    for name, odd in zip(names, ODD_SCHEMAS, strict=True):
        schema = {"name": name, "description": "Do.", "parameters": {"type": "object", **odd}}
        source = f'def {name}(**given):\n    """Do."""\n    return str(given)\n'
        tools.append(user.client.tools.create(source_code=source, json_schema=schema).id)
    agent = user.agent(name=f"{user.mark}odd", tool_ids=tools).id
    calls = [(names[0], {"x": [1, "b"]}), (names[1], {"x24_filter": "f"}), (names[2], {"a": "1"})]
    said = [said for kind, said in shown(user.send(agent, order(calls)).messages) if kind == "tool_return_message"]
    assert said, said
    answer = user.http.get(f"/v1/agents/{agent}/tools", params={"limit": 50}).json()
    warned = {tool["name"] for tool in answer if tool.get("schema_warnings")}
    assert warned == set(names), warned


def a_message_larger_than_the_window_is_named(user: User) -> None:
    agent = user.agent(name=f"{user.mark}large", context_window_limit=8000).id
    said = refused(lambda: user.send(agent, "lorem ipsum " * 20_000))
    (stored,) = [one for one in user.client.agents.messages.list(agent) if one.message_type == "user_message"]
    assert said.startswith("400") and stored.id in said, said
    assert shown(user.send(agent, "hello").messages) == [("assistant_message", "done")]


def a_constant_otid_brings_no_old_answer(user: User) -> None:
    agent = user.agent(name=f"{user.mark}otid").id
    for answer in ("one", "two"):
        assert shown(user.send(agent, order(answer), otid="always").messages) == [("assistant_message", answer)]


def an_empty_answer_after_a_tool_ends_the_turn(user: User) -> None:
    tool = user.tool("quiet")
    agent = user.agent(name=f"{user.mark}quiet", tool_ids=[tool.id]).id
    for empty in ("", " \n"):
        reply = user.send(agent, order([(tool.name, {"x": "1"})], empty))
        assert [kind for kind, _ in shown(reply.messages)] == ["tool_call_message", "tool_return_message"], reply
        assert reply.stop_reason.stop_reason == "end_turn"


def send_message_ends_the_turn(user: User) -> None:
    """For every type of agent that has it, with thoughts under either name; one that is refused says nothing."""
    for kind in ("memgpt_agent", "memgpt_v2_agent", "letta_v1_agent", "react_agent", "sleeptime_agent"):
        agent = user.agent(name=user.mark + kind, agent_type=kind, tools=["send_message"]).id
        reply = user.send(agent, order([("send_message", {"message": "hi", "inner_thoughts": "I greet."})], "again"))
        assert [one for one in shown(reply.messages) if one[1]] == [("assistant_message", "hi")], (kind, reply)
        if kind == "memgpt_agent":
            assert reply.messages[0].reasoning == "I greet.", reply
        assert (reply.stop_reason.stop_reason, reply.usage.step_count) == ("end_turn", 1), (kind, reply)
    rules = [{"type": "run_first", "tool_name": "memory_insert"}]
    names = ["send_message", "memory_insert"]
    agent = user.agent(name=f"{user.mark}refused", agent_type="memgpt_v2_agent", tools=names, tool_rules=rules).id
    insert = ("memory_insert", {"label": "human", "new_string": "y", "request_heartbeat": True})
    text = order([("send_message", {"message": "too early"})], [insert], [("send_message", {"message": "now"})])
    for messages in (
        user.send(agent, text).messages,
        user.stream(agent, text),
        user.client.agents.messages.list(agent),
    ):
        said = [one for kind, one in shown(messages) if kind == "assistant_message"]
        assert "".join(map(str, said)) in ("now", "nownow"), said  # the list has both runs


def limits_of_blocks_hold(user: User) -> None:
    client = user.client
    assert "its limit is 20" in refused(lambda: client.blocks.create(label="limited", value="x" * 50, limit=20))
    block = client.blocks.create(label="limited", value="x", limit=20)
    update = client.blocks.modify if IS_OLD else client.blocks.update
    assert "its limit is 20" in refused(lambda: update(block.id, value="x" * 50))
    blocks = [{"label": "human", "value": "x" * 50, "limit": 20}]
    assert "its limit is 20" in refused(lambda: user.agent(memory_blocks=blocks))


def the_old_name_rethink_memory_works(user: User) -> None:
    (tool,) = user.client.tools.list(name="rethink_memory")
    agent = user.agent(name=f"{user.mark}rethink", tool_ids=[tool.id]).id
    user.send(agent, order([("rethink_memory", {"new_memory": "anew", "target_block_label": "human"})]))
    assert [block.value for block in user.client.agents.blocks.list(agent)] == ["anew"]


def chat_completions_take_tools(user: User) -> None:
    agent = user.agent(name=f"{user.mark}chat").id
    weather = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    body = {
        "model": agent,
        "tools": [{"type": "function", "function": weather}],
        "messages": [{"role": "user", "content": order([("weather", {"city": "Oslo"})])}],
    }
    (choice,) = user.http.post("/v1/chat/completions", json=body).json()["choices"]
    assert choice["finish_reason"] == "tool_calls", choice
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather", choice


POINTS: tuple[Callable[[User], None], ...] = (
    things_are_deleted_while_they_are_listed,
    things_are_detached_while_they_are_listed,
    tools_of_an_mcp_server_have_its_names,
    files_of_a_folder_are_blocks,
    an_error_of_a_tool_is_in_stderr,
    skills_stay_in_the_system_message,
    an_odd_schema_stops_no_agent,
    a_message_larger_than_the_window_is_named,
    a_constant_otid_brings_no_old_answer,
    an_empty_answer_after_a_tool_ends_the_turn,
    send_message_ends_the_turn,
    limits_of_blocks_hold,
    the_old_name_rethink_memory_works,
    chat_completions_take_tools,
)


def main(url: str, model: str, mcp_url: str) -> int:
    """Try each point; returns how many fail."""
    warnings.simplefilter("ignore", DeprecationWarning)
    user, failures = User(url, model, mcp_url), 0
    for point in POINTS:
        try:
            point(user)
        except Exception:
            failures += 1
            print(f"{point.__name__}:\n{traceback.format_exc()}")
    print(VERSION)
    return failures


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
