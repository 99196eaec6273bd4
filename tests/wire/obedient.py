"""A model over HTTP that does what the last user message orders, and a real server that asks it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from perdure.core.messages import ToolCall
from perdure.core.models import ModelReply
from perdure.testing import HttpModel, says
from perdure.testing.http_model import HttpLine, Later
from tests.support.warm import KILL, killed, warm

MODEL = "openai/test"
SRC = Path(__file__).resolve().parents[2] / "src"
START_S = 30.0

STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "append": ("core_memory_append", {"label": "human", "content": "KEY"}),
    "replace": ("core_memory_replace", {"label": "human", "old_content": "KEY", "new_content": "tea"}),
    "insert_passage": ("archival_memory_insert", {"content": "The user visited Oslo."}),
    "archive": ("archival_memory_insert", {"content": "note of KEY"}),
    "search_passage": ("archival_memory_search", {"query": "Oslo"}),
    "ask": ("ask_user", {"question": "Which colour for the KEY?"}),
    "search_history": ("conversation_search", {"query": "hello"}),
    "roll": ("roll", {"sides": "6", "label": 7}),
    "bash": ("Bash", {"command": "ls"}),
    "manage": ("manage_inventory", {"data": '{"item": {"sku": "A1"}}', "change": 2.0}),
}
"""Word of a message -> tool and arguments; `KEY` stands for the message's first word."""


def obey(asked: Mapping[str, Any]) -> HttpLine:
    """What the last user message orders: after `!` each word is one answer, and the names joined by `+` in it are its
    calls; then the model says `done` (`all of it done` after calls). `slowly` takes half a minute. After `!!` stands
    JSON instead, whose items are answers: a text, or calls as pairs of name and arguments."""
    messages = asked["messages"]
    if (exact := _exact(messages)) is not None:
        return exact
    said = {index: _text(message) for index, message in enumerate(messages) if message["role"] == "user"}
    at = max(index for index, text in said.items() if not text.startswith('{"type"'))  # what the engine adds
    text = said[at]
    key = text.split()[0]
    steps = [] if "!!" in text else text.partition("!")[2].split()
    taken = sum(message["role"] == "assistant" for message in messages[at:])
    if key == "slowly":
        return Later(30.0, says("done"))
    if taken >= len(steps):
        return says("all of it done" if steps else "done")
    calls = []
    for index, word in enumerate(steps[taken].split("+")):
        name, arguments = STEPS[word]
        values = {
            label: value.replace("KEY", key) if isinstance(value, str) else value for label, value in arguments.items()
        }
        calls.append(ToolCall(f"{key}-{taken}-{index}", name, json.dumps(values)))
    return ModelReply(parts=tuple(calls))


def _exact(messages: Sequence[Mapping[str, Any]]) -> ModelReply | None:
    """The next answer that JSON in a user message orders; None: all are given."""
    said = [message["content"] if message["role"] == "user" else "" for message in messages]
    at = max((index for index, text in enumerate(said) if "!!" in text), default=None)
    if at is None:
        return None
    steps, _ = json.JSONDecoder().raw_decode(said[at].partition("!!")[2])
    taken = sum(message["role"] == "assistant" for message in messages[at:])
    if taken >= len(steps):
        return None
    if isinstance(step := steps[taken], str):
        return says(step)
    calls = [ToolCall(f"call-{at}-{taken}-{n}", name, json.dumps(given)) for n, (name, given) in enumerate(step)]
    return ModelReply(parts=tuple(calls))


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    # Neighbouring user messages are sent as one, and so is what the engine adds to them.
    said = [piece for piece in text.split("\n\n") if not piece.startswith('{"type"')]
    return said[-1] if said else text


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Server:
    """`perdure serve` as a process of its own, which may be killed and started again on the same files.

    `settings` are environment variables.
    """

    home: Path
    model_url: str
    port: int = field(default_factory=free_port)
    settings: Mapping[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it said, all its lives."""
        return self.home / "serve.log"

    async def start(self, *, wait: bool = True) -> None:
        """Start it; with `wait`, return when it answers. Raises: AssertionError: it did not, with what it said."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "HOME", "LANG", "TMPDIR") or name.startswith(("LC_", "PYTHON"))
        }
        environment |= {
            "PYTHONPATH": str(SRC),
            "PERDURE_HOME": str(self.home),
            "PERDURE_LEASE_S": "2",
            "PERDURE_EMBEDDING": "none",
            "OPENAI_BASE_URL": self.model_url,
            "OPENAI_API_KEY": "none",
            **self.settings,
        }
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(warm("perdure", environment), "serve", "--port", str(self.port)),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait:
            await self.healthy()

    async def healthy(self) -> None:
        """Wait until it answers."""
        assert self.process is not None
        deadline = asyncio.get_running_loop().time() + START_S
        async with httpx.AsyncClient(trust_env=False) as client:
            while asyncio.get_running_loop().time() < deadline and self.process.returncode is None:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{self.url}/v1/health/")).status_code == 200:
                        return
                await asyncio.sleep(0.02)
        raise AssertionError(f"the server did not answer:\n{self.log.read_text(errors='replace')}")

    async def kill(self) -> int:
        """End it without a word; its exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(KILL)
        return killed(await self.process.wait())

    async def stop(self) -> int:
        """Ask it to stop; its exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 20)


@contextlib.asynccontextmanager
async def served(home: Path) -> AsyncIterator[Server]:
    """A started server and its model."""
    async with HttpModel(otherwise=obey) as model:
        server = Server(home, model.url)
        await server.start()
        try:
            yield server
        finally:
            await server.kill()
