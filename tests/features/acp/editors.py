"""An editor for tests: a client of the protocol's SDK that notes what it is shown, and answers as it was told to."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import acp
from acp import schema
from acp.client.connection import ClientSideConnection

from perdure import AsyncPerdure
from perdure.core.tasks import end_tasks
from perdure.features.acp.agent import EditorAgent
from perdure.features.acp.transport import LINE_LIMIT_BYTES, LineTransport
from perdure.library.agent import AsyncAgent
from tests.support.library import MODEL, open_async

CANCELLED = "cancelled"

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass
class Editor:
    """The editor's side of the protocol.

    Args:
        choices: the options that it chooses when it is asked, in order; None: it never answers, `cancelled`: it says
            that the prompt was cancelled.
        updates: (session, update) of all that it was shown.
        questions: the calls that it was asked about.
    """

    choices: list[str | None] = field(default_factory=list)
    updates: list[tuple[str, Any]] = field(default_factory=list)
    questions: list[schema.ToolCallUpdate] = field(default_factory=list)
    options: list[list[str]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    shown: asyncio.Event = field(default_factory=asyncio.Event)

    def on_connect(self, conn: Any) -> None:
        """It keeps the connection itself."""

    async def session_update(self, session_id: str, update: Any, **others: Any) -> None:
        self.updates.append((session_id, update))
        if isinstance(update, schema.AgentMessageChunk):
            self.shown.set()

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **others: Any
    ) -> schema.RequestPermissionResponse:
        self.questions.append(tool_call)
        self.options.append([one.option_id for one in options])
        self.asked.set()
        choice = self.choices.pop(0)
        if choice is None:
            await asyncio.Event().wait()
        if choice == CANCELLED:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=str(choice))
        return schema.RequestPermissionResponse(outcome=outcome)

    def texts(self, session_id: str, kind: type[Any] = schema.AgentMessageChunk) -> str:
        """What was said in a session, in one piece."""
        chunks = [one for session, one in self.updates if session == session_id and isinstance(one, kind)]
        return "".join(one.content.text for one in chunks if isinstance(one.content, schema.TextContentBlock))

    def calls(self) -> list[tuple[str, str | None]]:
        """(title or id, status) of each update of a tool call, in order; without changes of memory."""
        titles: dict[str, str] = {}
        rows = list[tuple[str, str | None]]()
        for _, update in self.updates:
            if isinstance(update, schema.ToolCallStart):
                titles[update.tool_call_id] = update.title
            if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
                rows.append((titles[update.tool_call_id], update.status))
        return [row for row in rows if not row[0].startswith("Memory")]

    def diffs(self) -> list[tuple[str, str | None, str]]:
        """(path, old text, new text) of each diff."""
        starts = [update for _, update in self.updates if isinstance(update, schema.ToolCallStart)]
        found = [one for start in starts for one in start.content or ()]
        return [
            (one.path, one.old_text, one.new_text) for one in found if isinstance(one, schema.FileEditToolCallContent)
        ]

    def of(self, kind: type[Any]) -> list[Any]:
        """The updates of a kind."""
        return [update for _, update in self.updates if isinstance(update, kind)]


@dataclass
class Desk:
    """A store with an agent, the editor that is connected to it, and what it said on stderr."""

    perdure: AsyncPerdure
    agent: AsyncAgent
    editor: Editor
    connection: ClientSideConnection
    writer: asyncio.StreamWriter
    notes: list[str]

    async def begin(self, cwd: str = "/home/ada/project") -> str:
        """Begin a session; its id."""
        return (await self.connection.new_session(cwd=cwd, mcp_servers=[])).session_id

    async def say(self, session_id: str, text: str) -> str:
        """Send a text and wait for the end; why it ended."""
        answered = await self.connection.prompt(session_id=session_id, prompt=[acp.text_block(text)])
        return str(answered.stop_reason)


@asynccontextmanager
async def connected(
    path: Path,
    *script: Any,
    choices: list[str | None] | None = None,
    tools: Any = (),
    asks: str = "",
    model: Any = None,
) -> AsyncIterator[Desk]:
    """An editor that is connected to an agent of a store.

    Args:
        script: what the model answers; see `ScriptedModel`.
        asks: a tool whose calls need approval.
    """
    async with await open_async(path, *script, model=model, tools=tools) as perdure:
        agent = await perdure.last_agent() or await perdure.create_agent("Ada", model=MODEL)
        if asks:
            await agent.require_approval(asks)
        async with wired(perdure, agent, choices or []) as desk:
            yield desk


@asynccontextmanager
async def wired(perdure: AsyncPerdure, agent: AsyncAgent, choices: list[str | None]) -> AsyncIterator[Desk]:
    """An editor and an agent at both ends of a socket."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT_BYTES)
    agent_reader, agent_writer = await asyncio.open_connection(sock=theirs, limit=LINE_LIMIT_BYTES)
    editor, notes = Editor(choices), list[str]()
    served: Any = EditorAgent(perdure, partial(perdure.agent, agent.id), notes.append)
    await served.open()
    serving = asyncio.create_task(
        acp.run_agent(served, LineTransport(agent_reader, agent_writer), use_unstable_protocol=True)
    )
    client: Any = editor
    connection = acp.connect_to_agent(client, writer, reader, use_unstable_protocol=True)
    try:
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield Desk(perdure, agent, editor, connection, writer, notes)
    finally:
        await connection.close()
        writer.close()
        await asyncio.wait({serving}, timeout=5)
        await end_tasks(serving)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; at most 5 s."""
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it is not so after 5 s")
