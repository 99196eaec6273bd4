"""The whole server of Open WebUI in front of `/openai/v1`: what its pages ask for, it asks an agent for.

Skipped, but where `PERDURE_OPEN_WEBUI` is the Python of an environment that has the package `open-webui`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.models import ModelReply, ModelRequest
from perdure.library.perdure import AsyncPerdure
from perdure.testing import ScriptedModel, says
from tests.features.openai_front.test_open_webui import texts_of
from tests.support.servers import served
from tests.wire.obedient import free_port

PYTHON = os.environ.get("PERDURE_OPEN_WEBUI", "")
START_S = 180.0
TASKS = ("title", "tags", "follow_up", "queries", "auto", "emoji", "image_prompt")

pytestmark = pytest.mark.skipif(not PYTHON, reason="PERDURE_OPEN_WEBUI names no Python")


@dataclass
class Page:
    """A page of the program with a chat: it sends all of it each time."""

    http: httpx.AsyncClient
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def send(self, text: str) -> str:
        """Say something, and return the answer."""
        self.messages.append({"role": "user", "content": text})
        body = {"model": "ann", "messages": self.messages, "stream": False}
        answer = (await self.http.post("/api/chat/completions", json=body)).raise_for_status().json()
        said = str(answer["choices"][0]["message"]["content"])
        self.messages.append({"role": "assistant", "content": said})
        return said

    async def ask_beside(self, task: str) -> None:
        """Ask for what it shows beside the chat."""
        body = {"model": "ann", "messages": self.messages, "type": "web_search", "prompt": self.messages[0]["content"]}
        answer = await self.http.post(f"/api/v1/tasks/{task}/completions", json={**body, "stream": False})
        assert answer.status_code == 200, (task, answer.text)


@contextlib.asynccontextmanager
async def open_webui(folder: Path, address: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the program's server, signed in."""
    port = free_port()
    frontend = "import open_webui, os; print(os.path.dirname(open_webui.__file__), end='/frontend')"
    found = await asyncio.create_subprocess_exec(PYTHON, "-c", frontend, stdout=asyncio.subprocess.PIPE)
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")},
        **{"DATA_DIR": str(folder), "FRONTEND_BUILD_DIR": (await found.communicate())[0].decode()},
        **{"WEBUI_SECRET_KEY": "for tests", "WEBUI_AUTH": "False", "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1"},
        **{"OPENAI_API_BASE_URL": f"{address}/openai/v1", "OPENAI_API_KEY": "none", "ENABLE_OLLAMA_API": "False"},
        **{"RAG_EMBEDDING_ENGINE": "openai", "ENABLE_AUTOCOMPLETE_GENERATION": "True"},
    }
    serve = ("-m", "uvicorn", "open_webui.main:app", "--host", "127.0.0.1", "--port", str(port))
    with (folder / "log").open("wb") as log:
        work = await asyncio.create_subprocess_exec(
            *(PYTHON, *serve), cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:
            async with asyncio.timeout(START_S):
                while True:
                    assert work.returncode is None, (folder / "log").read_text()[-3_000:]
                    with contextlib.suppress(httpx.HTTPError):
                        if (await http.get("/health")).is_success:
                            break
                    await asyncio.sleep(0.5)
            signed = await http.post("/api/v1/auths/signin", json={"email": "", "password": ""})
            http.headers["authorization"] = f"Bearer {signed.raise_for_status().json()['token']}"
            models = (await http.get("/api/models")).raise_for_status().json()["data"]
            assert "ann" in [one["id"] for one in models]
            yield http
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(work.pid, signal.SIGTERM)
        await work.wait()


async def conversations(library: AsyncPerdure) -> list[list[str]]:
    agent = await library.agent("ann")
    found = [one for one in await agent.conversations() if one.seq > 0]
    return [[row.text for row in await agent.messages(conversation=one.id)] for one in found]


async def test_open_webui_talks_to_an_agent(tmp_path: Path) -> None:
    """A chat knows what another one said; what is asked beside a chat leaves no trace; an edited message forks."""

    def answer(request: ModelRequest) -> ModelReply:
        return says(f"A{len(request.messages)} about it.")

    model = ScriptedModel(*[answer] * 100)
    (tmp_path / "webui").mkdir()
    async with served(tmp_path, model=model) as (address, library), contextlib.AsyncExitStack() as stack:
        agent = await library.create_agent("ann", tools=())
        http = await stack.enter_async_context(open_webui(tmp_path / "webui", address))
        first = Page(http)
        await first.send("My favourite drink is oolong tea.")
        for task in TASKS:
            await first.ask_beside(task)
        beside = len(model.requests) - 1
        runs = len(await agent.runs())
        second = Page(http)
        await second.send("Which drink is my favourite drink?")
        recalled = texts_of(model.requests)
        del second.messages[-2:]
        await second.send("Which drink do I like?")
        said = await conversations(library)

    assert beside == len(TASKS) and runs == 1
    assert "oolong tea" in recalled
    assert [one[0] for one in said] == [
        "My favourite drink is oolong tea.",
        "Which drink is my favourite drink?",
        "Which drink do I like?",
    ]
    assert all(len(one) == 2 for one in said)
