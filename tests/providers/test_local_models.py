"""Which models of servers on this machine, and of one's own, an agent may be given."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from perdure import AsyncPerdure, ModelNotFound
from perdure.core.models import EXTRACTIVE
from perdure.providers.discovery import ModelListing, find_providers
from perdure.providers.provider import PROVIDERS
from perdure.providers.registry import ModelRegistry
from perdure.settings import Settings
from perdure.testing import InlineStore
from tests.providers.fake_provider import FakeProvider, fake_provider, set_port

LISTED = {"/v1/models": {"data": [{"id": "qwen3:latest"}, {"id": "gpt-oss:20b"}]}}
NOWHERE = {"OLLAMA_BASE_URL": "http://127.0.0.1:9"}


@pytest.fixture(autouse=True)
def closed_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Ports may be asked; nobody listens on those of Ollama and LM Studio until a test says so."""
    monkeypatch.setenv("PERDURE_PROBE_LOCAL", "1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port: int = closed.getsockname()[1]
        for name in [name for name, provider in PROVIDERS.items() if provider.port]:
            set_port(monkeypatch, name, port)
        yield port


def port_of(provider: FakeProvider) -> int:
    return int(provider.url.rpartition(":")[2])


async def test_a_server_that_does_not_answer_has_no_models(closed_port: int) -> None:
    """Before anybody looked it is believed to; an agent that has a model of its keeps it in any case."""
    models = ModelRegistry()
    assert models.takes("ollama/qwen3") and models.takes("lmstudio/x")
    await models.probe_local()

    assert not models.takes("ollama/qwen3") and "lmstudio/x" not in models.handles()
    assert models.find("ollama/qwen3") is not None
    error = models.not_found("ollama/qwen3")
    assert error.known == (EXTRACTIVE,)
    assert str(error) == (
        f"model 'ollama/qwen3' is not available here: there are {EXTRACTIVE}. Nobody answers on port"
        f" {closed_port} of this machine: start ollama, or set OLLAMA_BASE_URL"
    )


async def test_a_server_that_answers_has_what_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag may be left out where it is `latest`; of another model the error says how to get it."""
    async with fake_provider(LISTED) as provider:
        set_port(monkeypatch, "ollama", port_of(provider))
        models = ModelRegistry()
        await models.probe_local()

    assert all(models.takes(f"ollama/{name}") for name in ("qwen3", "qwen3:latest", "gpt-oss:20b"))
    assert not any(models.takes(f"ollama/{name}") for name in ("qwen3:8b", "gpt-oss", "whatever"))
    assert models.find("ollama/whatever") is not None
    error = models.not_found("ollama/whatever")
    assert error.known == ("ollama/gpt-oss:20b", "ollama/qwen3:latest", EXTRACTIVE)
    assert str(error).endswith(f"{provider.url}/v1 has no model 'whatever': `ollama pull whatever` gets it")


async def test_a_server_is_asked_again_before_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets models while this process runs, and may be started after it; one that is known is not asked for."""
    models = ModelRegistry()
    await models.probe_local()
    async with fake_provider({**LISTED}) as provider:
        set_port(monkeypatch, "ollama", port_of(provider))
        models._default_endpoints = dict(ModelRegistry()._default_endpoints)
        await models.look_for("ollama/qwen3")
        assert models.takes("ollama/qwen3")
        count = sum(one.path == "/v1/models" for one in provider.requests)
        await models.look_for("ollama/qwen3")
        assert sum(one.path == "/v1/models" for one in provider.requests) == count

        provider.answers["/v1/models"] = {"data": [*LISTED["/v1/models"]["data"], {"id": "new:1b"}]}
        assert not models.takes("ollama/new:1b")
        await models.look_for("ollama/new:1b")
        assert models.takes("ollama/new:1b")

    await models.look_for("ollama/newer")  # gone again
    assert not models.takes("ollama/newer") and not models.takes("ollama/qwen3")
    assert "start ollama" in str(models.not_found("ollama/qwen3"))


async def test_a_server_with_an_address_of_its_own() -> None:
    """It is believed while it is down, and its list decides when there is one."""
    models = ModelRegistry(endpoints=find_providers(NOWHERE))
    await models.look_for("ollama/anything")
    assert models.takes("ollama/anything")
    async with fake_provider(LISTED) as provider:
        models = ModelRegistry(endpoints=find_providers({"OLLAMA_BASE_URL": provider.url}))
        await models.look_for("ollama/anything")
        assert not models.takes("ollama/anything") and models.takes("ollama/qwen3")
    await models.look_for("ollama/anything")
    assert models.takes("ollama/anything")


async def test_a_server_without_any_model_has_none() -> None:
    """An empty list is an answer."""
    async with fake_provider({"/v1/models": {"data": None}}) as provider:
        models = ModelRegistry(endpoints=find_providers({"OLLAMA_BASE_URL": provider.url}))
        await models.refresh()

    assert models.listings["ollama"] == ModelListing()
    assert not models.takes("ollama/qwen3")


async def test_who_asks_for_no_ports_to_be_asked_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PERDURE_PROBE_LOCAL=0 nobody can know."""
    monkeypatch.setenv("PERDURE_PROBE_LOCAL", "0")
    models = ModelRegistry()
    await models.probe_local()
    await models.look_for("ollama/qwen3")

    assert models.takes("ollama/qwen3")


@pytest.mark.parametrize("handle", ["openai/gpt-4.1", "ollama", "ollama/", "", "x/y", EXTRACTIVE, None])
async def test_nobody_is_asked_for_other_models(handle: Any) -> None:
    """Nor is a handle that is none an error."""
    models = ModelRegistry(endpoints=find_providers({"OPENAI_API_KEY": "sk-1"}))
    await models.look_for(handle)

    assert models.listings == {}


async def test_the_library_asks_before_it_makes_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And before it gives one another model."""
    async with await AsyncPerdure.open(settings=Settings(), store=InlineStore()) as perdure:
        with pytest.raises(ModelNotFound, match="start ollama, or set OLLAMA_BASE_URL"):
            await perdure.create_agent("a", model="ollama/qwen3")
        agent = await perdure.create_agent("a")
        with pytest.raises(ModelNotFound, match="start lmstudio, or set LMSTUDIO_BASE_URL"):
            await agent.update(model="lmstudio/qwen3")
        assert (await perdure.agent(agent.id)).info.model == EXTRACTIVE


async def test_a_server_that_loads_its_model_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has models as soon as it has loaded one; the wait is told."""
    monkeypatch.setattr("perdure.providers.discovery.LOADING_PAUSE_S", 0)
    answers = [(503, {"error": {"message": "Loading model"}})] * 2 + [{"data": [{"id": "m"}]}] * 9
    told: list[str] = []
    async with fake_provider({"/v1/models": lambda body: answers.pop(0)}) as provider:
        registry = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": f"{provider.url}/v1"}))
        choice = await registry.choose("", progress=told.append)

    assert choice.handle == "openai/m"
    assert any("is loading its model" in one for one in told)
