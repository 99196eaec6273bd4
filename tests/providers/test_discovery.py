"""What is found in the environment and on this machine, and which model is chosen of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from perdure.core.models import EXTRACTIVE
from perdure.providers.choosing import DefaultModel, chat_models, fallback_choice, is_chat_model
from perdure.providers.discovery import ModelListing, find_providers, list_models, probe_local
from perdure.providers.openai_endpoint import api_url
from perdure.providers.provider import Endpoint
from perdure.providers.registry import ModelRegistry
from tests.providers.fake_provider import fake_provider, tool_call
from tests.support.cases import for_each
from tests.support.http_payloads import Payload, PayloadServer

SECRET = "sk-very-secret-0123456789"


def found_in(**environment: str) -> dict[str, Endpoint]:
    return {found.provider: found for found in find_providers(environment)}


@for_each(
    [
        ({"OPENAI_API_KEY": SECRET}, "openai", "https://api.openai.com/v1"),
        ({"OPENAI_BASE_URL": "http://localhost:8000"}, "openai", "http://localhost:8000/v1"),
        ({"OPENAI_BASE_URL": "http://localhost:8000/v1/"}, "openai", "http://localhost:8000/v1"),
        ({"OPENAI_API_BASE": "https://proxy.example/llm/api/v3"}, "openai", "https://proxy.example/llm/api/v3"),
        ({"OPENAI_BASE_URL": "http://box:8000/v1/chat/completions"}, "openai", "http://box:8000/v1"),
        ({"OPENAI_BASE_URL": "http://box:8000/chat/completions/"}, "openai", "http://box:8000/v1"),
        ({"OPENAI_BASE_URL": "https://box/openai/v1/?api-version=1"}, "openai", "https://box/openai/v1?api-version=1"),
        ({"OLLAMA_HOST": "http://box:1/x?y=1"}, "ollama", "http://box:1/v1"),
        ({"ANTHROPIC_API_KEY": SECRET}, "anthropic", "https://api.anthropic.com"),
        (
            {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/v1"},
            "anthropic",
            "http://127.0.0.1:9",
        ),
        ({"GOOGLE_API_KEY": SECRET}, "google", "https://generativelanguage.googleapis.com"),
        ({"OPENROUTER_API_KEY": SECRET}, "openrouter", "https://openrouter.ai/api/v1"),
        ({"OLLAMA_BASE_URL": "http://box:11434/api"}, "ollama", "http://box:11434/v1"),
        ({"OLLAMA_HOST": "0.0.0.0"}, "ollama", "http://127.0.0.1:11434/v1"),
        ({"OLLAMA_HOST": "192.168.1.5:1234"}, "ollama", "http://192.168.1.5:1234/v1"),
        ({"OLLAMA_HOST": ":4000"}, "ollama", "http://127.0.0.1:4000/v1"),
        ({"OLLAMA_HOST": "https://ollama.example"}, "ollama", "https://ollama.example/v1"),
        ({"OLLAMA_HOST": "[::1]:11434"}, "ollama", "http://[::1]:11434/v1"),
        ({"LMSTUDIO_BASE_URL": "http://localhost:1234"}, "lmstudio", "http://localhost:1234/v1"),
        ({"VLLM_API_BASE": "http://gpu:8000"}, "vllm", "http://gpu:8000/v1"),
        ({"GROQ_API_KEY": SECRET}, "groq", "https://api.groq.com/openai/v1"),
        ({"MISTRAL_API_KEY": SECRET}, "mistral", "https://api.mistral.ai/v1"),
        ({"DEEPSEEK_API_KEY": SECRET}, "deepseek", "https://api.deepseek.com/v1"),
        ({"TOGETHER_API_KEY": SECRET}, "together", "https://api.together.xyz/v1"),
    ]
)
def test_a_provider_is_found_by_its_variables(environment: Mapping[str, str], provider: str, url: str) -> None:
    """With and without /v1, hosts in the forms that Ollama takes, and nothing but what was set."""
    found = found_in(**environment)

    assert list(found) == [provider]
    assert found[provider].base_url == url
    assert found[provider].source == ", ".join(sorted(environment, key=lambda name: "KEY" in name))
    assert found[provider].problem == ""


def test_nothing_is_found_where_nothing_is_set() -> None:
    """Empty variables are nothing either."""
    assert found_in() == {}
    assert found_in(OPENAI_API_KEY="", OLLAMA_HOST="  ") == {}


def test_a_key_is_never_shown() -> None:
    """Not in the value's repr, not in an address with a password."""
    found = find_providers({"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": f"https://me:{SECRET}@proxy.example/v1"})

    assert found[0].api_key == SECRET
    assert SECRET not in repr(found) + found[0].address
    assert found[0].address == "https://proxy.example/v1"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OPENAI_BASE_URL": "http://"}, "OPENAI_BASE_URL is 'http://': it is not an address"),
        ({"OLLAMA_HOST": "box:port"}, "OLLAMA_HOST is 'box:port'"),
        ({"OPENAI_BASE_URL": "ftp://box/v1"}, "it is not an address"),
        ({"OPENAI_BASE_URL": f"http://me:{SECRET}@box:x"}, "it is not an address"),
        ({"ANTHROPIC_BASE_URL": "http://box"}, "ANTHROPIC_API_KEY is not"),
        ({"OPENAI_API_KEY": f"{SECRET}\nx"}, "OPENAI_API_KEY has characters that no key has"),
        ({"OPENAI_API_KEY": f"{SECRET}\tx"}, "OPENAI_API_KEY has characters that no key has"),
        ({"ANTHROPIC_API_KEY": f"{SECRET}\x1b"}, "ANTHROPIC_API_KEY has characters that no key has"),
        ({"OPENAI_BASE_URL": f"ftp://box?key={SECRET}"}, "it is not an address"),
        ({"OPENAI_API_KEY": "sk-…"}, "OPENAI_API_KEY has characters that no key has"),
    ],
)
async def test_what_can_not_be_used_says_why(environment: Mapping[str, str], expected: str) -> None:
    """It is found all the same, so that a person is told; it is not asked, and not chosen."""
    (found,) = find_providers(environment)

    assert expected in found.problem
    assert SECRET not in found.problem
    assert (await list_models(found)).problem == found.problem
    choice = await ModelRegistry(endpoints=[found]).choose("")
    assert (choice.handle, choice.notes) == (EXTRACTIVE, (found.problem,))


async def test_a_key_that_can_not_be_sent_is_not_shown() -> None:
    """Whoever made the value: the HTTP library would quote the header."""
    for provider in ("openai", "anthropic", "google"):
        listing = await list_models(Endpoint(provider=provider, base_url="http://127.0.0.1:9", api_key=f"{SECRET}\nx"))

        assert "has characters that no key has" in listing.problem
        assert SECRET not in listing.problem


async def test_the_query_of_an_address_goes_with_every_question() -> None:
    """For the list as for the chat; it is not shown, because it may hold a key."""
    (found,) = find_providers({"OPENAI_BASE_URL": "http://box/v1/chat/completions?api-version=1"})

    assert found.entry.api.listing_request(found)[0] == "http://box/v1/models?api-version=1"
    assert api_url(found.base_url, "/chat/completions") == "http://box/v1/chat/completions?api-version=1"
    assert api_url(found.base_url) == found.base_url
    assert found.address == "http://box/v1"
    async with PayloadServer(Payload.json({"data": [{"id": "a"}]})) as server:
        listing = await list_models(Endpoint(provider="openai", base_url=f"{server.url}/v1?api-version=1"))
    assert listing.models == ("a",)
    assert server.received[0].path == "/v1/models?api-version=1"


@pytest.mark.parametrize(
    "answer",
    [
        {"data": [{"id": "a"}, {"id": "models/b"}, {"id": "a"}, {"no": "id"}, 5]},
        {"models": [{"name": "models/a"}, {"name": "b"}]},
        [{"id": "a"}, {"id": "b"}],
    ],
)
async def test_models_are_listed_whatever_the_shape(answer: Any) -> None:
    """The key goes in the header; OpenAI's, Gemini's and Together's lists are read."""
    async with fake_provider({"/v1/models": answer}) as provider:
        listing = await list_models(Endpoint(provider="openai", base_url=f"{provider.url}/v1", api_key=SECRET))

    assert listing == ModelListing(("a", "b"))
    assert provider.requests[0].headers["authorization"] == f"Bearer {SECRET}"


async def test_anthropic_and_gemini_are_asked_in_their_own_way() -> None:
    """Their keys go in headers of their own, never in the address."""
    answers = {
        "/v1/models": {"data": [{"id": "claude-x"}]},
        "/v1beta/models": {"models": [{"name": "models/gemini-x"}]},
    }
    async with fake_provider(answers) as provider:
        claude = await list_models(
            Endpoint(provider="anthropic", base_url=provider.url, api_key=SECRET, source="ANTHROPIC_API_KEY")
        )
        gemini = await list_models(
            Endpoint(provider="google", base_url=provider.url, api_key=SECRET, source="GEMINI_API_KEY")
        )

    assert (claude.models, gemini.models) == (("claude-x",), ("gemini-x",))
    assert provider.requests[0].headers["x-api-key"] == SECRET
    assert provider.requests[1].headers["x-goog-api-key"] == SECRET


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((401, {}), "refused the key in OPENAI_API_KEY (401)"),
        ((500, {}), "answered 500"),
        (b"<html>", "is not a list of models"),
        ({"data": "none"}, "is not a list of models"),
    ],
)
async def test_a_failed_listing_is_a_value(answer: Any, expected: str) -> None:
    """A sentence without the key; nothing is raised."""
    async with fake_provider({"/v1/models": answer}) as provider:
        found = Endpoint(provider="openai", base_url=f"{provider.url}/v1", api_key=SECRET, source="OPENAI_API_KEY")
        listing = await list_models(found)

    assert expected in listing.problem
    assert SECRET not in listing.problem
    assert listing.models == ()


async def test_a_provider_that_does_not_answer_is_not_waited_for() -> None:
    """Neither a silent one nor one that is not there."""
    async with fake_provider({"/v1/models": {}}, delay_s=0.4) as provider:
        slow = await list_models(Endpoint(provider="openai", base_url=f"{provider.url}/v1"), timeout_s=0.1)
        await asyncio.sleep(0.4)
    gone = await list_models(Endpoint(provider="openai", base_url=f"{provider.url}/v1"))

    assert "did not answer within 0.1 s" in slow.problem
    assert "can't be reached" in gone.problem


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local server behind HTTP_PROXY is still local."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with fake_provider({"/v1/models": {"data": [{"id": "a"}]}}) as provider:
        listing = await list_models(Endpoint(provider="openai", base_url=f"{provider.url}/v1"))

    assert listing.models == ("a",)


def local(url: str, provider: str = "ollama") -> Endpoint:
    return Endpoint(provider=provider, base_url=f"{url}/v1", source="port 11434")


async def test_local_servers_are_found_where_they_listen() -> None:
    """Only those that answer with a list; a closed port costs nothing, and the setting keeps Perdure from asking."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = local(f"http://127.0.0.1:{closed.getsockname()[1]}", "lmstudio")
        async with fake_provider({"/v1/models": {"data": [{"id": "qwen3:8b"}]}}) as provider:
            there = await probe_local([nobody, local(provider.url)])

    assert [(found.provider, listing.models) for found, listing in there] == [("ollama", ("qwen3:8b",))]
    assert await probe_local() == []  # PERDURE_PROBE_LOCAL=0, set for all tests


def test_before_anybody_is_asked_only_a_setting_decides() -> None:
    """The models of a key or an address are not guessed at: a server can stand behind OpenAI's variables."""
    models = ModelRegistry(endpoints=find_providers({"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "http://box/v1"}))

    assert models.first_choice("x/y") == DefaultModel("x/y", "from PERDURE_MODEL", is_setting=True)
    assert models.first_choice("") == fallback_choice()


def test_only_models_that_talk_are_picked() -> None:
    """A preferred one if it is there, else the first that is no embedding, voice or picture model."""
    names = ("text-embedding-3-small", "whisper-1", "tts-1", "gpt-image-1", "my-model", "gpt-4.1-mini")

    assert chat_models(names, ("gpt-4.1*",)) == ["gpt-4.1-mini", "my-model"]
    assert chat_models(names, ("gpt-9",)) == ["my-model", "gpt-4.1-mini"]
    assert chat_models(names[:4], ("gpt-9",)) == []
    assert is_chat_model("qwen3:8b")


async def chosen(**environment: str) -> DefaultModel:
    registry = ModelRegistry(endpoints=find_providers(environment))
    choice = await registry.choose(environment.get("PERDURE_MODEL", ""))
    await registry.close()
    return choice


async def test_the_model_is_one_that_the_provider_has() -> None:
    """One without a list gets its default model, and so does one that refuses the key: its runs say what is wrong, and
    nothing is sent to anybody else."""
    async with (
        fake_provider({"/v1/models": (401, {})}) as refuses,
        fake_provider({"/v1/models": {"data": [{"id": "embed-x"}, {"id": "mistral-large-latest"}]}}) as answers,
        fake_provider({}) as no_list,
    ):
        choice = await chosen(MISTRAL_API_KEY=SECRET, MISTRAL_BASE_URL=answers.url)
        refused = await chosen(
            OPENAI_API_KEY=SECRET, OPENAI_BASE_URL=refuses.url, MISTRAL_API_KEY=SECRET, MISTRAL_BASE_URL=answers.url
        )
        default = await chosen(GROQ_API_KEY=SECRET, GROQ_BASE_URL=no_list.url)

    assert (choice.handle, choice.reason) == ("mistral/mistral-large-latest", "from MISTRAL_BASE_URL, MISTRAL_API_KEY")
    assert refused.handle.startswith("openai/")
    assert "refused the key" in refused.reason
    assert default.handle == "groq/llama-3.3-70b-versatile"
    assert SECRET not in repr((choice, default, refused))


async def test_a_model_that_calls_tools_is_preferred() -> None:
    """Why another one is passed over is told."""

    def answer(body: Any) -> Any:
        return tool_call() if body["model"] == "qwen2.5:7b" else {"choices": [{"message": {"content": "no"}}]}

    models = {"data": [{"id": "nomic-embed-text"}, {"id": "gemma2"}, {"id": "qwen3:1b"}, {"id": "qwen2.5:7b"}]}
    async with fake_provider({"/v1/models": models, "/v1/chat/completions": answer}) as provider:
        good = await chosen(OLLAMA_HOST=provider.url)
        tried = [one.body["model"] for one in provider.requests if one.path == "/v1/chat/completions"]
        provider.answers["/v1/models"] = {"data": None}
        empty = await chosen(OLLAMA_HOST=provider.url)

    assert tried == ["qwen3:1b", "qwen2.5:7b"]
    assert (good.handle, good.reason) == ("ollama/qwen2.5:7b", "found by OLLAMA_HOST, and it calls tools")
    assert good.notes == ("ollama/qwen3:1b: it did not call the tool it was asked to call",)
    assert "ollama pull" in empty.notes[0]
