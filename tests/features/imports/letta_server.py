"""A server that speaks Letta's API as it was recorded, with agents that a test makes up, and its faults."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
LLM = {"model": "gpt-4o-mini", "model_endpoint_type": "openai", "handle": "openai-proxy/gpt-4o-mini"} | {
    "context_window": 128_000,
    "put_inner_thoughts_in_kwargs": False,
    "reasoning_effort": None,
}
DAY = datetime(2024, 5, 1, 8, tzinfo=UTC)
STAMPS = {"created_by_id": None, "last_updated_by_id": None, "created_at": DAY.isoformat(), "updated_at": None}
SOURCE = '''def roll(sides: int) -> str:
    """Roll a die.

    Args:
        sides (int): How many sides it has.
    """
    return str(sides)
'''


def id_of(kind: str, *facts: object) -> str:
    """An id of the form that Letta's ids have, the same for equal facts."""
    made = uuid.uuid5(uuid.NAMESPACE_URL, repr(facts))
    return f"{kind}-{uuid.UUID(bytes=made.bytes, version=4)}"


def message(kind: str, number: int, *facts: object, **fields: Any) -> Object:
    """A message of the wire; those of one `facts` are parts of one stored message."""
    at = (DAY + timedelta(minutes=number)).isoformat(timespec="seconds")
    common = dict.fromkeys(("name", "otid", "sender_id", "step_id", "is_err", "seq_id", "run_id"))
    return {"id": id_of("message", *facts), "date": at, **common, "message_type": kind, **fields}


def call(name: str, call_id: str, **arguments: Any) -> Object:
    """The fields of a message with a call."""
    one = {"name": name, "arguments": json.dumps(arguments), "tool_call_id": call_id}
    return {"tool_call": one, "tool_calls": [one]}


def result(text: str, call_id: str, status: str = "success") -> Object:
    """The fields of a message with a result."""
    one = {"status": status, "tool_call_id": call_id, "tool_return": text, "stdout": [], "stderr": []}
    return {**one, "tool_returns": [{"type": "tool", **one}]}


def history(owner: str, rounds: int) -> list[Object]:
    """A conversation: its compiled prompt, and rounds of a question, a thought, a call with its result, an answer."""
    found = [
        message("system_message", 0, owner, "system", content="You are kind.\n\n<memory_blocks>\n</memory_blocks>")
    ]
    for n in range(rounds):
        ask, think, answer = (owner, n, "ask"), (owner, n, "call"), (owner, n, "answer")
        call_id = f"call_{uuid.uuid5(uuid.NAMESPACE_URL, repr(think)).hex[:24]}"
        found += [
            message("user_message", 4 * n, *ask, content=f"{owner}: how is day {n}?"),
            message("reasoning_message", 4 * n + 1, *think, reasoning="A die says it.", source="reasoner_model"),
            message("tool_call_message", 4 * n + 1, *think, **call("roll", call_id, sides=n + 2)),
            message(
                "tool_return_message", 4 * n + 2, owner, n, "return", name="roll", **result(f"rolled {n}", call_id)
            ),
            message("assistant_message", 4 * n + 3, *answer, content=f"{owner}: day {n} is fine."),
        ]
    return found


@dataclass
class World:
    """What the server holds, by the paths of its lists and things; and its faults.

    `faults`: path -> (status, headers) of its next answers, in order; the last one of a list stays if it is `...`.
    `stops_after`: so many answers it gives before it gives none any more.
    """

    lists: dict[str, list[Object]] = field(default_factory=dict)
    things: dict[str, Object] = field(default_factory=dict)
    faults: dict[str, list[Any]] = field(default_factory=dict)
    stops_after: int | None = None
    key: str | None = None
    asked: Counter[str] = field(default_factory=Counter)
    queries: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)

    def add(self, path: str, *found: Object) -> None:
        """Add things to a list, each also by itself."""
        self.lists.setdefault(path, []).extend(found)
        self.things |= {f"{path}{one['id']}": one for one in found}

    def add_agent(self, name: str, *, rounds: int = 1, blocks: Sequence[Object] = (), **fields: Any) -> Object:
        """Add an agent with its first conversation."""
        key = fields.pop("key", name)
        made: Object = {**STAMPS, "id": id_of("agent", key), "name": name, "system": "You are kind."}
        made |= {"agent_type": "letta_v1_agent", "tool_rules": [], "tools": [], "tags": [], "metadata": None}
        made |= {"model": "openai-proxy/gpt-4o-mini", "embedding": None, "llm_config": LLM}
        made |= {"blocks": [*blocks], "memory": {"blocks": [*blocks]}, "secrets": [], "message_ids": [], **fields}
        self.add("/v1/agents/", made)
        self.lists[f"/v1/agents/{made['id']}/messages default"] = history(key, rounds)
        return made

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Mapping[str, str], Any]:
        """The status, headers and value of an answer."""
        self.asked[path] += 1
        self.queries.append((path, query))
        if (faults := self.faults.get(path)) is not None and faults:
            status, headers = faults[0]
            if faults[1:] != [...]:
                faults.pop(0)
            return status, headers, {"detail": "An unknown error occurred"}
        if path in self.things:
            return 200, {}, self.things[path]
        named = f"{path} {query['conversation_id'][0]}" if "conversation_id" in query else path
        if named not in self.lists:
            return 404, {}, {"detail": "Not Found"}
        found = [one for one in self.lists[named] if isinstance(one, dict)]
        if "agent_id" in query:
            agent_id = query["agent_id"][0]
            found = [one for one in found if agent_id in one.get("of", [one.get("agent_id")])]
        if "before" in query:
            ids = [one.get("id") for one in found]
            found = found[: ids.index(query["before"][0])]
        if "after" in query:
            places = [place for place, one in enumerate(found) if one.get("id") == query["after"][0]]
            if not places:
                return 404, {}, {"detail": "there is no such cursor"}
            found = found[places[-1] + 1 :]
        return 200, {}, _whole(found, int(query.get("limit", ["50"])[0]))


def _whole(found: Sequence[Object], limit: int) -> list[Object]:
    """The first `limit` things; of a stored message all parts."""
    end = min(limit, len(found))
    while 0 < end < len(found) and found[end].get("id") == found[end - 1].get("id"):
        end += 1
    return [*found[:end]]


@contextmanager
def serving(world: World) -> Iterator[str]:
    """The address of a server of this world, on a free port of this machine, in threads of this process."""
    answers = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # one packet an answer

        def do_GET(self) -> None:
            nonlocal answers
            answers += 1
            if world.stops_after is not None and answers > world.stops_after:
                self.close_connection = True
                self.connection.close()
                return
            parts = urlsplit(self.path)
            if world.key and self.headers.get("Authorization") != f"Bearer {world.key}":
                status, headers, value = 401, dict[str, str](), {"detail": "Unauthorized"}
            else:
                status, headers, value = world.answer(parts.path, parse_qs(parts.query))  # type: ignore[assignment]
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for name, one in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, one)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Write nothing."""

        def handle(self) -> None:
            with suppress(OSError, ValueError):  # the client was killed, or the test has cut the connection
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def block(label: str, value: str, key: object = None) -> Object:
    """A block as answers have it."""
    return {"id": id_of("block", key or label), "label": label, "value": value, "limit": 100_000, "read_only": False}


def tool(name: str = "roll", source: str | None = SOURCE, kind: str = "custom") -> Object:
    """A tool as answers have it."""
    schema = {"name": name, "description": "Roll a die.", "parameters": {"type": "object", "properties": {}}}
    more = {"source_type": "python", "tags": [], "return_char_limit": 50_000, "default_requires_approval": None}
    return {"id": id_of("tool", name), "name": name, "tool_type": kind, "source_code": source, **more} | (
        {"json_schema": {**schema, "parameters": _SIDES}} if kind == "custom" else {"json_schema": schema}
    )


_SIDES = {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}


def full_world(rounds: int = 133, fill: Callable[[World], object] = lambda world: None) -> World:
    """Three agents with about 2,000 messages of the wire together, of which two share a block and an archive, and one
    of every other kind of thing."""
    world = World()
    shared = block("house", "It is blue.", "shared")
    roll, gone, search = tool(), tool("gone", None), tool("conversation_search", None, "letta_core")
    world.add("/v1/tools/", roll, gone, search)
    rules = [{"type": "max_count_per_step", "tool_name": "roll", "max_count_limit": 2}]
    secrets = [{"key": "CITY_KEY", "value": "s3cret-value"}]
    ann = world.add_agent(
        "Ann",
        rounds=rounds,
        blocks=[block("human", "Name: Jo", 1), shared],
        tools=[roll, search],
        tool_rules=rules,
        secrets=secrets,
    )
    bob = world.add_agent("Bob", rounds=rounds, blocks=[block("persona", "I am Bob", 2), shared], tools=[roll, gone])
    world.add_agent("Bob", key="Bob 2", rounds=rounds, blocks=[block("persona", "I am Bob, too", 3)])
    both = [ann["id"], bob["id"]]
    archive = {**STAMPS, "id": id_of("archive", 1), "name": "moon", "description": None, "metadata": None, "of": both}
    world.add("/v1/archives/", archive)
    passages: list[Object] = [
        {
            "id": id_of("passage", n),
            "text": f"Moon fact {n}",
            "tags": ["m"],
            "metadata": {},
            "archive_id": archive["id"],
            **STAMPS,
        }
        for n in range(120)
    ]
    for one in both:
        world.add(f"/v1/agents/{one}/archival-memory", *passages)
    talk = {**STAMPS, "id": id_of("conv", 1), "agent_id": ann["id"], "summary": "Trip", "isolated_block_ids": []}
    world.add("/v1/conversations/", talk)
    world.lists[f"/v1/agents/{ann['id']}/messages {talk['id']}"] = history("trip", 3)
    folder = {**STAMPS, "id": id_of("source", 1), "name": "papers", "description": "All papers", "metadata": None}
    world.add("/v1/folders/", folder)
    world.lists[f"/v1/agents/{ann['id']}/folders"] = [folder]
    texts = {"a.txt": "The lease ends in May.", "b.pdf": "Page one.", "c.bin": None}
    world.lists[f"/v1/folders/{folder['id']}/files"] = [
        {"id": id_of("file", name), "file_name": name, "content": text, "processing_status": "completed"}
        for name, text in texts.items()
    ]
    world.add(
        "/v1/identities/",
        {
            "id": id_of("identity", 1),
            "identifier_key": "jo",
            "name": "Jo",
            "identity_type": "user",
            "properties": [],
            "agent_ids": both,
            "block_ids": [],
            "project_id": None,
        },
    )
    world.add(
        "/v1/groups/",
        {
            "id": id_of("group", 1),
            "manager_type": "round_robin",
            "agent_ids": both,
            "description": "Pair",
            "shared_block_ids": [],
            "max_turns": 3,
        },
    )
    world.add(
        "/v1/mcp-servers/",
        {
            "id": id_of("mcp_server", 1),
            "server_name": "maps",
            "mcp_server_type": "streamable_http",
            "server_url": "https://maps.example/mcp",
            "auth_token": "s3cret-token",
            "custom_headers": {"X-Team": "s3cret-team"},
        },
    )
    when = {"type": "recurring", "cron_expression": "0 9 * * 1"}
    sent = {"messages": [{"role": "user", "content": "Plan the week"}]}
    world.things[f"/v1/agents/{ann['id']}/schedule"] = {
        "has_next_page": False,
        "scheduled_messages": [{"id": id_of("schedule", 1), "agent_id": ann["id"], "message": sent, "schedule": when}],
    }
    world.add("/v1/blocks/", block("lonely", "Nobody has me.", "lonely"))
    world.add("/v1/providers/", {"id": id_of("provider", 1), "name": "my-openai", "provider_category": "byok"})
    fill(world)
    return world
