"""Letta Code, headless and unchanged, against `perdure serve`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.testing import HttpModel
from tests.wire.obedient import Server, obey

LETTA_CODE = Path(sys.prefix) / "letta-code"
CALL_S = 120.0
MODEL = "openai/gpt-4o-mini"  # its window has room for the program's 35,000 tokens of prompt and tools

pytestmark = pytest.mark.skipif(not LETTA_CODE.is_dir(), reason="`make letta-code` installs Letta Code (80 MB)")


@dataclass(slots=True)
class LettaCode:
    """The program, with a home of its own, and the server and model behind it."""

    home: Path
    server: Server
    model: HttpModel
    more: Mapping[str, str] = field(default_factory=dict)
    """More variables of its environment."""

    async def run(self, *arguments: str) -> str:
        """What a call prints. Raises: AssertionError: it failed."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PYTHONPATH": str(LETTA_CODE),
            "LETTA_BASE_URL": self.server.url,
            "LETTA_API_KEY": "none",
            **self.more,
        }
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "import letta_code; letta_code.main()", *arguments),
            cwd=self.home,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await asyncio.wait_for(program.communicate(), CALL_S)
        assert program.returncode == 0, "\n".join(
            [" ".join(arguments), out.decode(), errors.decode(), self.server.log.read_text()]
        )
        return out.decode()

    async def ask(self, text: str, *options: str) -> Mapping[str, Any]:
        """The result of a prompt."""
        result: Mapping[str, Any] = json.loads(await self.run("-p", text, "--output-format", "json", *options))
        assert not result["is_error"], result
        return result

    def last_request(self) -> str:
        """All that the model read last, as JSON."""
        return json.dumps(self.model.requests[-1]["messages"])


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Server, HttpModel]]:
    """A server, and the model behind it."""
    async with HttpModel(otherwise=obey, models=("gpt-4o-mini",)) as model:
        server = Server(tmp_path_factory.mktemp("perdure"), model.url)
        await server.start()
        try:
            yield server, model
        finally:
            await server.kill()


@pytest.fixture
async def letta_code(tmp_path: Path, served: tuple[Server, HttpModel]) -> AsyncIterator[LettaCode]:
    server, model = served
    yield LettaCode(tmp_path, server, model)
    async with httpx.AsyncClient(base_url=server.url) as client:
        for agent in (await client.get("/v1/agents/")).json():
            await client.delete(f"/v1/agents/{agent['id']}")


async def test_a_second_call_remembers_also_after_the_server_was_killed(letta_code: LettaCode) -> None:
    """In the same conversation, with a tool of the program's own in the first turn."""
    first = await letta_code.ask("mangrove !bash", "--new-agent", "--model", MODEL, "--yolo")
    same = ("--conversation", first["conversation_id"])
    second = await letta_code.ask("ferry", *same)

    assert (first["result"], second["result"]) == ("all of it done", "done")
    assert "mangrove" in letta_code.last_request()

    await letta_code.server.kill()
    await letta_code.server.start()
    third = await letta_code.ask("lighthouse", *same)

    assert third["conversation_id"] == first["conversation_id"]
    assert all(word in letta_code.last_request() for word in ("mangrove", "ferry", "lighthouse"))


async def test_a_conversation_has_a_model_of_its_own(letta_code: LettaCode) -> None:
    first = await letta_code.ask("hello", "--new-agent", "--model", MODEL)
    conversation = first["conversation_id"]

    await letta_code.run(
        "model", "set", MODEL, "--model-settings", '{"temperature": 0.25}', "--conversation", conversation
    )
    shown = json.loads(await letta_code.run("model", "get", "--conversation", conversation))
    await letta_code.ask("again", "--conversation", conversation)

    assert shown["model_settings"]["temperature"] == 0.25
    assert letta_code.model.requests[-1]["temperature"] == 0.25


async def test_an_ephemeral_call_leaves_no_agent(letta_code: LettaCode) -> None:
    result = await letta_code.ask("hello", "--ephemeral", "--model", MODEL)

    assert result["result"] == "done"
    assert json.loads(await letta_code.run("agents", "list"))["items"] == []


async def test_the_mcp_servers_of_an_agent_are_listed(letta_code: LettaCode) -> None:
    agent = (await letta_code.ask("hello", "--new-agent", "--model", MODEL))["agent_id"]

    assert json.loads(await letta_code.run("mcp", "list", "--agent", agent)) == []


async def test_its_memory_is_a_git_repository_on_the_server(letta_code: LettaCode) -> None:
    """It clones the memory, edits it by a tool of its own, and pushes; the server's edits reach it the next time."""
    letta_code.more = {"LETTA_MEMFS_LOCAL": "1", "LETTA_MEMFS_BASE_URL": letta_code.server.url}
    edit = (
        "cd $MEMORY_DIR && echo 'Mangroves are ours.' >> system/human.md && git commit -qam 'They said so' && git log"
    )
    steps = [[["exec_command", {"cmd": edit, "description": "Edit memory"}]], "done"]
    first = await letta_code.ask(f"hello !!{json.dumps(steps)}", "--new-agent", "--model", MODEL, "--yolo")
    async with httpx.AsyncClient(base_url=letta_code.server.url) as client:
        agent = f"/v1/agents/{first['agent_id']}"
        human = (await client.get(f"{agent}/core-memory/blocks/human")).json()
        state = (await client.get(agent)).json()
        await client.patch(f"{agent}/core-memory/blocks/persona", json={"value": "A lighthouse keeper."})
    look = "cd $MEMORY_DIR && git log --format=%s && cat system/persona.md"
    steps = [[["exec_command", {"cmd": look, "description": "Read memory"}]], "done"]
    await letta_code.ask(f"again !!{json.dumps(steps)}", "--conversation", first["conversation_id"], "--yolo")

    assert human["value"].endswith("\nMangroves are ours.")
    assert (state["memory"]["git_enabled"], "git-memory-enabled" in state["tags"]) == (True, True)
    assert "They said so" in letta_code.last_request()
    assert "A lighthouse keeper." in letta_code.last_request()
