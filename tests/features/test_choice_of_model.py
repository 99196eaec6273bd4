"""Every door chooses the same model for an agent that is made without one, and the agent follows the default."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.agents import AgentFilter
from perdure.core.models import EXTRACTIVE
from perdure.library.parts.checks import Page
from perdure.library.parts.providers import ProviderFields
from perdure.settings import Settings
from perdure.testing import InlineStore, LocalServer, says
from tests.support.programs import run_inside
from tests.ui.browser import dashboard

QWEN = "openai/qwen3"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalServer]:
    """A server near by that lists only `qwen3`, behind OpenAI's variables, with some key as many clients demand."""
    async with LocalServer(kind="vllm", models=("qwen3",), otherwise=says("hello")) as near:
        monkeypatch.setenv("OPENAI_BASE_URL", near.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-some-key-0123456789")
        yield near


async def test_the_library_takes_what_the_server_has(server: LocalServer) -> None:
    async with await AsyncPerdure.open(settings=Settings(embedding="none"), store=InlineStore()) as perdure:
        made = await perdure.create_agent("made")
        pinned = await perdure.create_agent("pinned", model=EXTRACTIVE)
        freed = await pinned.update(model=None)

        assert [(one.info.model, one.info.follows_default) for one in (made, freed)] == [(QWEN, True)] * 2
        assert (await made.send("hi")).text == "hello"


@pytest.mark.uses("extractive")
async def test_an_agent_from_before_takes_it_by_every_way(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the program came by the agent: it never asks for a model that the server does not list."""
    file = tmp_path / "perdure.db"
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    async with await AsyncPerdure.open(file, settings=Settings(embedding="none")) as perdure:
        old = await perdure.create_agent("old")
        assert old.info.model == EXTRACTIVE
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-some-key-0123456789")

    async def of_page(perdure: AsyncPerdure) -> str:
        return (await perdure.all_agents.page(AgentFilter(), Page(10, ascending=False)))[0].model

    async def of_last(perdure: AsyncPerdure) -> str:
        agent = await perdure.last_agent()
        return "" if agent is None else agent.info.model

    async def of_run(perdure: AsyncPerdure) -> str:
        await perdure.agent_of(old.id).send("hi")
        return (await perdure.agent_of(old.id).steps())[0].model

    for way in (of_page, of_last, of_run):
        async with await AsyncPerdure.open(file, settings=Settings(embedding="none")) as perdure:
            assert await way(perdure) == QWEN


async def test_rest_and_the_page_take_it(server: LocalServer) -> None:
    async with dashboard(default="") as (client, _):
        listed = (await client.get("/v1/models/")).json()[0]["handle"]
    async with dashboard(default="") as (client, library):
        made = (await client.post("/v1/agents/", json={"name": "made"})).json()
        agent = (await library.agent(made["id"])).info
    async with dashboard(default="") as (client, library):
        shown = (await client.get("/?format=json")).json()["model"]["handle"]
        await client.post("/agents", data={"name": "Ada"})
        ada = (await library.agent("Ada")).info

    assert (agent.model, listed, shown, ada.model) == (QWEN,) * 4
    assert agent.follows_default and ada.follows_default


def test_the_command_line_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create() -> dict[str, Any]:
        async with LocalServer(kind="vllm", models=("qwen3",), otherwise=says("hello")) as near:
            near_by = {"OPENAI_BASE_URL": near.url, "OPENAI_API_KEY": "sk-some-key-0123456789"}
            done = await asyncio.to_thread(run_inside, tmp_path, "agent", "create", "nova", "--json", **near_by)
            assert done.returncode == 0, done.stderr
            made: dict[str, Any] = json.loads(done.stdout)
            return made

    made = asyncio.run(create())

    assert (made["model"], made["follows_default"]) == (QWEN, True)


async def test_a_registered_provider_is_asked_before_its_model_is_taken(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this process and by the others of the store."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    file, settings = tmp_path / "perdure.db", Settings(embedding="none", secret_key="for tests, this one")
    async with (
        await AsyncPerdure.open(file, settings=settings) as first,
        await AsyncPerdure.open(file, settings=settings) as second,
    ):
        before = (await first.create_agent("before")).info.model
        fields = ProviderFields(name="mine", provider_type="openai", api_key="sk-1234567", base_url=server.url)
        await first.providers.create(fields, private=True)
        await second.app.providers.load()
        after = [(await one.create_agent(name)).info.model for one, name in ((first, "a"), (second, "b"))]

    assert (before, after) == (EXTRACTIVE, ["mine/qwen3", "mine/qwen3"])
