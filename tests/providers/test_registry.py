"""Which handles lead to a model, and to which."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import AsyncPerdure, ModelNotFound
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, Reasoning, Text
from perdure.core.models import EXTRACTIVE, ModelRequest
from perdure.providers.build import PortableTools, build_model
from perdure.providers.choosing import DefaultModel
from perdure.providers.discovery import ModelListing, find_providers
from perdure.providers.provider import Endpoint, ModelSource
from perdure.providers.registry import ModelRegistry
from perdure.providers.retrying import Retrying
from perdure.providers.text_calls.model import TextCalls
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from perdure.testing.clock import START
from tests.providers.fake_provider import fake_provider

KEYS = {"OPENAI_API_KEY": "sk-1", "OPENROUTER_API_KEY": "sk-2", "GEMINI_API_KEY": "sk-3"}


def registry(**listed: tuple[str, ...]) -> ModelRegistry:
    listings = {provider: ModelListing(models) for provider, models in listed.items()}
    return ModelRegistry(endpoints=find_providers(KEYS), listings=listings)


@pytest.mark.parametrize(
    "handle",
    [
        "openai/gpt-4.1",
        "openai-proxy/gpt-4.1",
        "openrouter/meta-llama/llama-3",
        "google_ai/gemini-2.5-pro",
        "ollama/qwen3:8b",
        "perdure/extractive",
    ],
)
def test_a_model_of_a_provider_that_is_there_is_found(handle: str) -> None:
    """Names are taken as they come, slashes included, and nothing is asked; the local ones need no variable."""
    models = registry()

    assert models.find(handle) is not None
    assert models.find(handle) is models.find(handle)
    assert handle in models.handles()


@pytest.mark.parametrize("handle", ["mistral/small", "openai", "openai/", "openai/ ", "", "x/y", "OPENAI/gpt-4.1"])
def test_what_nobody_has_is_not_found(handle: str) -> None:
    """No such provider here, or no name."""
    assert registry().find(handle) is None
    assert handle not in registry().handles()


def test_an_alias_is_the_same_model() -> None:
    """One adapter, one connection."""
    models = registry()

    assert models.find("openai-proxy/gpt-4.1") is models.find("openai/gpt-4.1")


def test_a_list_that_is_known_decides() -> None:
    """Dates and variants aside. A server of one's own may have more than it lists."""
    models = registry(openai=("gpt-4.1", "claude-haiku-4-5-20251001"), ollama=("qwen3:latest",))

    assert models.find("openai/gpt-4.1") is not None
    assert models.find("openai/claude-haiku-4-5") is not None
    assert models.find("openai/gpt-4.1:variant") is not None
    assert models.find("ollama/qwen3-pulled-later") is not None
    assert models.find("openai/gpt-9") is None
    assert models.find("openai/gpt-4") is None
    assert models.find("openrouter/anything") is not None
    assert list(models.handles()) == [
        "ollama/qwen3:latest",
        "openai/claude-haiku-4-5-20251001",
        "openai/gpt-4.1",
        EXTRACTIVE,
    ]


def test_a_program_s_own_model_wins() -> None:
    """Also under a provider's name."""
    own = ScriptedModel()
    models = ModelRegistry({"openai/gpt-4.1": own}, endpoints=find_providers(KEYS))

    assert models.find("openai/gpt-4.1") is own
    assert "openai/gpt-4.1" in list(models.handles())


async def test_a_provider_with_a_problem_has_no_models() -> None:
    """An address that is none leads nowhere."""
    models = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": "http://"}))

    assert models.find("openai/gpt-4.1") is None


async def test_lists_are_fetched_and_kept() -> None:
    """A provider that can't be asked later keeps the list it gave."""
    async with fake_provider({"/v1/models": {"data": [{"id": "b"}, {"id": "a"}]}}) as provider:
        models = ModelRegistry(endpoints=[Endpoint(provider="openai", base_url=f"{provider.url}/v1")])
        await models.refresh()
    listings = await models.refresh()

    assert listings["openai"].models == ("b", "a")
    assert list(models.handles()) == ["openai/a", "openai/b", EXTRACTIVE]


async def test_the_library_finds_providers_and_takes_their_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening asks no network; an agent made without a model gets the one of the first key, asked for once."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-2")
    async with await AsyncPerdure.open(settings=Settings(), store=InlineStore()) as perdure:
        agent = await perdure.create_agent("a")
        other = await perdure.create_agent("b", model="openrouter/meta-llama/llama-3")
        changed = await other.update(model="ollama/qwen3")

        assert perdure.app.choice.reason.startswith("from OPENROUTER_API_KEY; it can't be asked now")
        assert agent.info.model == "openrouter/openai/gpt-4.1-mini"
        assert changed.info.model == "ollama/qwen3"
        with pytest.raises(ModelNotFound):
            await perdure.create_agent("c", model="openai/gpt-4.1")


async def test_a_setting_decides_over_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no provider is asked for it."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    opened = await AsyncPerdure.open(settings=Settings(model=EXTRACTIVE), store=InlineStore())
    async with opened as perdure:
        choice = await perdure.app.choose()

        assert (choice.handle, choice.reason) == (EXTRACTIVE, "from PERDURE_MODEL")
        assert perdure.app.choice is choice
        assert (await perdure.create_agent("a")).info.model == EXTRACTIVE


def test_a_default_that_was_found_takes_the_place_of_no_language_model() -> None:
    """Only of the built-in program, and of a model whose provider is gone; one of the settings counts at once."""
    found = find_providers({"OPENAI_API_KEY": "sk-1", "GROQ_API_KEY": "sk-2"})
    models = ModelRegistry({"test/own": ScriptedModel()}, endpoints=found)
    openai = "openai/gpt-4.1-mini"
    models.choice = DefaultModel(openai, "from OPENAI_API_KEY")
    by_finding = [models.follow(handle) for handle in (EXTRACTIVE, "groq/x", "gone/x", "test/own", "ollama/qwen3")]
    models.choice = models.first_choice("test/own")
    by_setting = [models.follow(handle) for handle in (EXTRACTIVE, openai)]
    models.choice = models.first_choice("nobody/x")
    unknown = models.follow(openai)
    models.choice = models.first_choice("")

    assert by_finding == [openai, "groq/x", openai, "test/own", "ollama/qwen3"]
    assert (by_setting, unknown) == (["test/own", "test/own"], openai)
    assert [models.follow(handle) for handle in (EXTRACTIVE, "gone/x")] == [EXTRACTIVE, "gone/x"]


async def test_a_found_provider_answers_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the variable to the reply; the connections are closed with the store."""
    reply = {"choices": [{"message": {"role": "assistant", "content": "Hello Ada."}, "finish_reason": "stop"}]}
    async with fake_provider({"/v1/chat/completions": reply}) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567")
        async with await AsyncPerdure.open(tmp_path / "a.db", settings=Settings()) as perdure:
            agent = await perdure.create_agent("a")
            answer = await agent.send("hi")

    assert answer.text == "Hello Ada."
    assert agent.info.model == "openai/gpt-4.1-mini"
    sent = [one for one in provider.requests if one.path == "/v1/chat/completions"]
    assert sent[0].headers["authorization"] == "Bearer sk-1234567"
    assert sent[0].body["model"] == "gpt-4.1-mini"


@pytest.mark.parametrize(("found", "shown"), [("anthropic", "claude-x"), ("google", "gemini-x"), ("ollama", "qwen3")])
def test_each_provider_has_its_adapter(found: str, shown: str) -> None:
    """Those with an API of their own through pydantic-ai, the others through the chat API; all ask again."""
    endpoint = Endpoint(provider=found, base_url="http://127.0.0.1:9/v1")
    model = build_model(ModelSource(endpoint=endpoint, name=shown))

    assert isinstance(model, Retrying)
    around = model.model
    assert isinstance(around, PortableTools)
    chat = around.model.model if isinstance(around.model, TextCalls) else around.model
    assert type(chat).__name__ == ("OpenAIChat" if found == "ollama" else "DirectModel")
    assert isinstance(around.model, TextCalls) == (found == "ollama")


@pytest.mark.parametrize(
    ("provider", "field"), [("deepseek", "reasoning_content"), ("openrouter", "reasoning"), ("openai", None)]
)
async def test_reasoning_goes_back_where_the_provider_wants_it(provider: str, field: str | None) -> None:
    """Under its own name; other servers may refuse a field they don't know."""
    reply = {"choices": [{"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}
    message = Message(
        id=MessageId("message-1"),
        agent_id=AgentId("agent-1"),
        seq=1,
        conversation_seq=1,
        role="assistant",
        parts=(Reasoning("hm"), Text("yes")),
        created_at=START,
        occurred_at=START,
    )
    async with fake_provider({"/v1/chat/completions": reply}) as server:
        models = ModelRegistry(endpoints=[Endpoint(provider=provider, base_url=f"{server.url}/v1")])
        model = models.find(f"{provider}/x")
        assert model is not None
        request = ModelRequest(model=f"{provider}/x", system="", messages=(message,))
        _ = [piece async for piece in model.respond(request)]
        await models.close()

    shown = {} if field is None else {field: "hm"}
    assert server.requests[0].body["messages"] == [{"role": "assistant", "content": "yes"} | shown]
