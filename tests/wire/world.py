"""A server in this process with one thing of each kind, for operations to be called on.

Both clients reach it without a socket. What an operation removes or changes is made anew for each call of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import httpx

from perdure import AsyncPerdure
from perdure.core.messages import text_of
from perdure.core.models import Exchange, ModelDelta, ModelReply, ModelRequest
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedEmbedder, ScriptedModel, calls, fails, says, thinks

BASE = "http://127.0.0.1:8283"
MODEL = "openai/test"
WAIT_S = 30.0

SOURCE = '''
def double_{number}(value: int) -> int:
    """Double a number.

    Args:
        value: Any number.
    """
    return 2 * value
'''

EXCHANGE = Exchange(request={"model": "test"}, response={"id": "1"})
CLIENT_TOOL = {"name": "Bash", "description": "Run a command.", "parameters": {"type": "object", "properties": {}}}


class WordModel(ScriptedModel):
    """A model whose answer follows from the first word of the last user message. `waits` is set when it takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self._script = [_line(request)]
        if _words(request)[:1] == ["wait"]:
            self.waits.set()
            await asyncio.sleep(WAIT_S)
        async for piece in super().respond(request):
            yield replace(piece, exchange=EXCHANGE) if isinstance(piece, ModelReply) else piece


def _words(request: ModelRequest) -> list[str]:
    """The words of the last message, if it is the user's."""
    last = next((message for message in reversed(request.messages) if message.kind == "message"), None)
    return text_of(last.parts).split() if last is not None and last.role == "user" else []


def _line(request: ModelRequest) -> Any:
    match _words(request):
        case ["remember", *_]:
            return thinks("Worth a note.", calls("core_memory_append", label="human", content="Likes tea."))
        case ["bash", *_]:
            return calls("Bash", command="ls")
        case ["fail", *_]:
            return fails("the provider is down")
        case _:
            return thinks("Easy.", says("Hello, I am here."))


class LoopTransport(httpx.BaseTransport):
    """Sends the requests of another thread to an application on the loop that it lives on."""

    def __init__(self, transport: httpx.ASGITransport) -> None:
        self._transport, self._loop = transport, asyncio.get_running_loop()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._send(request), self._loop).result()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        answer = await self._transport.handle_async_request(asked)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())


@dataclass(slots=True)
class World:
    """What there is to call operations on; each method makes a new thing and returns its id, or the ids of several."""

    library: AsyncPerdure
    http: httpx.AsyncClient
    model: WordModel
    mcp_url: str
    kept: dict[str, Any] = field(default_factory=dict)
    _numbers: Any = field(default_factory=count)

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The answer of a request that succeeds."""
        answer = await self.http.request(method, path, json=body, **options)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self.send("POST", path, body or {}, **options)

    def name(self) -> str:
        """A name that nothing has."""
        return f"thing-{next(self._numbers)}"

    async def agent(self, **fields: Any) -> str:
        block = {"label": "human", "value": "Name: Ann."}
        shape = {"name": self.name(), "model": MODEL, "memory_blocks": [block], "tags": ["wire"], **fields}
        made = await self.post("/v1/agents/", {"tools": ["core_memory_append"], **shape})
        return str(made["id"])

    async def talk(self) -> dict[str, Any]:
        """The ids of an agent with history: reasoning, calls, an approval, a failed run, several conversations."""
        if not self.kept:
            self.kept = await self._talk()
        return self.kept

    async def _talk(self) -> dict[str, Any]:
        rules = [{"type": "requires_approval", "tool_name": "core_memory_append"}]
        agent = await self.agent(tool_rules=rules, secrets={"TOKEN": "x"}, description="Helps.")
        path = f"/v1/agents/{agent}"
        await self.post(f"{path}/messages", {"input": "remember tea"})
        yes = {"type": "approval", "approve": True, "tool_call_id": await self._open_call(agent)}
        reply = await self.post(f"{path}/messages", {"messages": [{"type": "approval", "approvals": [yes]}]})
        await self.http.post(f"{path}/messages", json={"input": "fail now"})
        conversation = await self.conversation(agent)
        runs = await self.send("GET", f"/v1/runs/?agent_id={agent}&conversation_id={conversation}")
        steps = await self.send("GET", f"/v1/runs/{runs[0]['id']}/steps")
        await self.folder(agent)
        return {
            "agent_id": agent,
            "conversation_id": conversation,
            "run_id": runs[0]["id"],
            "step_id": steps[0]["id"],
            "message_id": reply["messages"][-1]["id"],
        }

    async def _open_call(self, agent: str) -> str:
        pending = (await self.send("GET", f"/v1/agents/{agent}"))["pending_approval"]
        return str(pending["tool_call"]["tool_call_id"])

    async def waiting(self) -> str:
        """An agent with a call that waits for an approval."""
        agent = await self.agent(tool_rules=[{"type": "requires_approval", "tool_name": "core_memory_append"}])
        await self.post(f"/v1/agents/{agent}/messages", {"input": "remember tea"})
        return agent

    async def approval(self) -> dict[str, Any]:
        """An agent with a call that waits, and the messages that approve it."""
        agent = await self.waiting()
        yes = {"type": "approval", "approve": True, "tool_call_id": await self._open_call(agent)}
        return {"agent_id": agent, "messages": [{"type": "approval", "approvals": [yes]}]}

    async def conversation(self, agent: str | None = None) -> str:
        """A conversation with one answered message."""
        made = await self.post(f"/v1/conversations/?agent_id={agent or await self.agent()}", {"summary": "on boats"})
        await self.post(f"/v1/conversations/{made['id']}/messages", {"input": "hello", "streaming": False})
        return str(made["id"])

    async def busy(self) -> dict[str, str]:
        """An agent's conversation whose model does not answer."""
        agent = await self.agent()
        made = await self.post(f"/v1/conversations/?agent_id={agent}")
        body = {"input": "wait", "background": True, "streaming": True}
        self.model.waits.clear()
        sending = asyncio.ensure_future(self.http.post(f"/v1/conversations/{made['id']}/messages", json=body))
        self.kept.setdefault("sending", []).append(sending)
        await self.model.waits.wait()
        return {"agent_id": agent, "conversation_id": made["id"]}

    async def streamed(self) -> dict[str, Any]:
        """A conversation's background run that has ended; the older client names it differently, or not at all."""
        agent = await self.agent()
        made = await self.post(f"/v1/conversations/?agent_id={agent}")
        body = {"input": "remember tea", "background": True, "streaming": True, "stream_tokens": True}
        await self.http.post(f"/v1/conversations/{made['id']}/messages", json=body)
        (run,) = await self.send("GET", f"/v1/runs/?agent_id={agent}")
        id_ = run["id"]
        return {"conversation_id": made["id"], "run_id": id_, "path_run_id": id_, "extra_body": {"run_id": id_}}

    async def block(self, label: str = "notes") -> str:
        return str((await self.post("/v1/blocks/", {"label": label, "value": "Likes Go.", "tags": ["a"]}))["id"])

    async def shared_block(self) -> dict[str, str]:
        """A block and the agent that has it."""
        block = await self.block()
        return {"block_id": block, "agent_id": await self.agent(block_ids=[block])}

    async def tool(self) -> str:
        return str((await self.post("/v1/tools/", {"source_code": self.source(), "tags": ["a"]}))["id"])

    def source(self) -> str:
        """The source of a tool that nothing has."""
        return SOURCE.format(number=next(self._numbers))

    async def armed(self) -> dict[str, str]:
        """An agent and its tool."""
        tool = await self.tool()
        shape = await self.send("GET", f"/v1/tools/{tool}")
        return {"agent_id": await self.agent(tool_ids=[tool]), "tool_id": tool, "tool_name": shape["name"]}

    async def archive(self) -> str:
        return str((await self.post("/v1/archives/", {"name": self.name()}))["id"])

    async def passage(self) -> dict[str, str]:
        """An archive and its passage."""
        archive = await self.archive()
        made = await self.post(f"/v1/archives/{archive}/passages", {"text": "Io has volcanoes.", "tags": ["moon"]})
        return {"archive_id": archive, "passage_id": made["id"]}

    async def attached_archive(self) -> dict[str, str]:
        agent, archive = await self.agent(), await self.archive()
        await self.send("PATCH", f"/v1/agents/{agent}/archives/attach/{archive}")
        return {"agent_id": agent, "archive_id": archive}

    async def memory(self) -> dict[str, str]:
        """An agent and a passage of its own."""
        agent = await self.agent()
        (made,) = await self.post(f"/v1/agents/{agent}/archival-memory", {"text": "Io has volcanoes."})
        return {"agent_id": agent, "memory_id": made["id"]}

    async def new_folder(self) -> str:
        return str((await self.post("/v1/folders/", {"name": self.name(), "description": "Papers."}))["id"])

    async def folder(self, agent: str | None = None) -> dict[str, str]:
        """A folder with a file, attached to an agent."""
        agent = agent or await self.agent()
        folder = await self.new_folder()
        paper = {"file": ("paper.md", b"# Paper", "text/markdown")}
        made = await self.send("POST", f"/v1/folders/{folder}/upload", files=paper)
        await self.send("PATCH", f"/v1/agents/{agent}/folders/attach/{folder}")
        file = f"/v1/folders/{folder}/files/{made['id']}"
        for _ in range(1_000):
            if (await self.send("GET", file))["processing_status"] == "completed":
                break
            await asyncio.sleep(0.01)
        return {"agent_id": agent, "folder_id": folder, "file_id": made["id"]}

    async def identity(self) -> str:
        shape = {"identifier_key": self.name(), "name": "Ann", "identity_type": "user"}
        return str((await self.post("/v1/identities/", shape))["id"])

    async def attached_identity(self) -> dict[str, str]:
        """An agent and its identity."""
        agent, identity = await self.agent(), await self.identity()
        await self.send("PATCH", f"/v1/agents/{agent}/identities/attach/{identity}")
        return {"agent_id": agent, "identity_id": identity}

    async def schedule(self) -> dict[str, str]:
        """A schedule of an agent."""
        agent = await self.agent()
        shape = {"messages": [{"role": "user", "content": "hello"}], "schedule": {"scheduled_at": 4e12}}
        made = await self.post(f"/v1/agents/{agent}/schedule", shape)
        return {"agent_id": agent, "scheduled_message_id": made["id"]}

    async def mcp_server(self) -> dict[str, str]:
        """An MCP server and one of its tools."""
        config = {"mcp_server_type": "streamable_http", "server_url": self.mcp_url}
        server = (await self.post("/v1/mcp-servers/", {"server_name": self.name(), "config": config}))["id"]
        tools = await self.send("GET", f"/v1/mcp-servers/{server}/tools")
        return {"mcp_server_id": server, "tool_id": next(tool["id"] for tool in tools if "add" in tool["name"])}


@contextlib.asynccontextmanager
async def open_world(mcp_url: str, *, embedder: bool) -> AsyncIterator[tuple[World, Callable[[], httpx.Client]]]:
    """A server with a model, and with or without an embedder; and what makes a plain client of it for a thread."""
    settings = Settings(model=MODEL, secret_key="for tests, this one", embedding="none")
    model = WordModel()
    library = await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, settings=settings, embedder=ScriptedEmbedder() if embedder else None
    )
    transport = httpx.ASGITransport(create_app(library, ServerConfig()))
    headers = {"authorization": "Bearer none"}
    async with library, httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as http:
        world = World(library, http, model, mcp_url)
        try:
            yield world, lambda: httpx.Client(transport=LoopTransport(transport), base_url=BASE)
        finally:
            for sending in world.kept.get("sending", ()):
                sending.cancel()
