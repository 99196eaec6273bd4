"""What trying a model of a server of one's own shows, and what its server says of it."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.models import EXTRACTIVE, ModelTraits
from perdure.providers.choosing import DefaultModel, ToolTrial, try_tools
from perdure.providers.discovery import find_providers
from perdure.providers.provider import Endpoint
from perdure.providers.registry import ModelRegistry
from perdure.providers.traits import served_in
from perdure.testing import CALL_FORMS, Hanging, HttpModel, LocalServer, RawBody, Status, calls, says, writes_call
from tests.providers.fake_provider import set_port
from tests.support.openai_chats import openai_chat

HI = {"text": "hi"}
SECRET = "sk-very-secret-0123456789"


async def tried(line: Any, **facts: Any) -> ToolTrial:
    async with HttpModel(line, otherwise=line) as server:
        model = openai_chat(model="m", base_url=server.url, api_key=SECRET)
        try:
            return await try_tools(model, "vllm/m", **facts)
        finally:
            await model.aclose()


@pytest.mark.parametrize(
    ("line", "expected", "calling"),
    [
        (calls("note", **HI), "", "native"),
        (calls("note", text="ho"), "did not call the tool", "none"),
        (calls("other", **HI), "did not call the tool", "none"),
        (says("I note that you say hi."), "did not call the tool", "none"),
        (Status(400, {"error": f"no such thing {SECRET}"}), "answered 400", None),
        (RawBody(b"?"), "could not be tried", None),
    ],
)
async def test_a_model_is_tried_with_one_tool(line: Any, expected: str, calling: str | None) -> None:
    """It has to call the tool, with an argument that can be read; why it did not is kept, without the key."""
    trial = await tried(line)

    assert expected in trial.problem and bool(expected) == bool(trial.problem)
    assert trial.calling == calling
    assert SECRET not in trial.problem


@pytest.mark.parametrize("form", CALL_FORMS)
async def test_a_call_that_is_written_as_text_is_one(form: str) -> None:
    """In whichever form."""
    assert (await tried(writes_call(form, "note", **HI))).calling == "text"


async def test_a_model_that_says_nothing_is_not_waited_for() -> None:
    """The time is in the sentence."""
    assert await tried(Hanging(), silence_s=0.1) == ToolTrial("said nothing for 0.1 s")


async def test_as_long_as_something_comes_it_is_waited_for() -> None:
    """Though all of it takes longer than the model may be silent."""
    async with LocalServer(calls("note", **HI), read_tokens_s=130) as server:
        known = {"server": "llamacpp", "local": True}
        registry = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": server.url}))
        registry.learn("openai/local", **known)
        model = registry.find("openai/local")
        assert model is not None
        trial = await try_tools(model, "openai/local", silence_s=0.5)
        await registry.close()

    assert trial == ToolTrial(calling="native")


async def chosen(server: LocalServer, **environment: str) -> tuple[ModelRegistry, str]:
    registry = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": server.url, **environment}))
    registry.choice = await registry.choose("")
    await registry.close()
    return registry, registry.choice.handle


@pytest.mark.parametrize("key", ["", "x"])
@pytest.mark.parametrize(
    ("line", "calling", "reason"),
    [
        (calls("note", **HI), "native", "calls tools"),
        (writes_call("fence", "note", **HI), "text", "writes its tool calls as text"),
        (says("Hello!"), "none", "did not call the tool it was asked to call: memory is kept"),
        (Status(500, "broken"), None, "could not be tried"),
    ],
)
async def test_an_address_that_is_set_is_a_choice(line: Any, calling: str | None, reason: str, key: str) -> None:
    """Its model is used whatever trying it shows; the reason says what that was."""
    async with LocalServer(otherwise=line) as server:
        registry, handle = await chosen(server, **({"OPENAI_API_KEY": key} if key else {}))

    assert handle == "openai/local"
    assert reason in registry.choice.reason
    assert registry.traits(handle).calling == calling


async def test_a_server_that_nobody_named_has_to_call_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the built-in program answers: somebody may run it for something else."""
    monkeypatch.setenv("PERDURE_PROBE_LOCAL", "1")
    async with LocalServer(otherwise=says("Hello!"), kind="ollama") as server:
        port = int(server.url.rpartition(":")[2])
        set_port(monkeypatch, "lmstudio", 0)
        set_port(monkeypatch, "ollama", port)
        registry = ModelRegistry()
        choice = await registry.choose("")
        await registry.close()

    assert choice.handle == EXTRACTIVE
    assert choice.notes == ("ollama/local: it did not call the tool it was asked to call",)


async def test_what_is_known_is_not_tried_again() -> None:
    """Neither in this process nor in one that has loaded what another one learned."""
    async with LocalServer(otherwise=calls("note", **HI)) as server:
        registry, _ = await chosen(server)
        other = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": server.url}))
        other.learned.put_stored({"openai/local": registry.learned.stored("openai/local")})
        again = await registry.choose("")
        loaded = await other.choose("")
        elsewhere = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": "http://10.0.0.1/v1"}))
        elsewhere.learned.put_stored({"openai/local": registry.learned.stored("openai/local")})

    assert again == loaded == registry.choice
    assert len(server.requests) == 1
    assert elsewhere.traits("openai/local").calling is None


@pytest.mark.parametrize("tools", ["shown", "refused"])
async def test_that_no_call_comes_may_change_when_the_server_starts_again(tools: Any) -> None:
    """So it is not stored, and trying it sends tools whatever is known; answers in between change nothing."""
    async with LocalServer(otherwise=says("Hello!"), tools=tools) as server:
        registry, handle = await chosen(server)
        stored = registry.learned.stored(handle)
        server.tools = "shown"
        server.then(calls("note", **HI), writes_call("fence", "note", **HI))
        asked = len(server.requests)
        seen = [registry.traits(handle)]
        for _ in range(2):
            await registry.try_tools(handle)
            seen.append(registry.traits(handle))
        await registry.close()

    assert stored.keys() == {"address", "server", "window_tokens", "parameters", "by_trial"}
    assert [(one.calling, one.takes_tools) for one in seen] == [
        ("none", tools == "shown"),
        ("native", True),
        ("text", True),
    ]
    assert all(request["tools"] and request["temperature"] == 0 for request in server.requests[asked:])


@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "lmstudio", "ollama"])
async def test_the_window_is_what_the_server_runs_the_model_with(kind: Any) -> None:
    """By the listing of its kind; what the model was trained for is none."""
    async with LocalServer(kind=kind, window_tokens=4_096) as server:
        registry = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": server.url}))
        await registry.look_for("openai/local")

        assert registry.traits("openai/local").server == kind
        assert registry.window_tokens("openai/local") == registry.most_window_tokens("openai/local") == 4_096
        assert registry.traits("openai/local").parameters == (1_500_000_000 if kind in ("llamacpp", "ollama") else None)

        server.window_tokens = 8_192
        await registry.refresh()
        await registry.look_at("openai/local")
        assert registry.window_tokens("openai/local") == 8_192


def test_what_a_model_was_trained_for_is_no_window_of_it() -> None:
    """LM Studio says it of a loaded model too, in versions that don't say what it is loaded with."""
    row = {"id": "m", "state": "loaded", "max_context_length": 131_072}

    assert served_in({"data": [row]}) == {}
    assert served_in({"data": [{**row, "loaded_context_length": 4_096}]})["m"]["window_tokens"] == 4_096


class OwnModel:
    """The models of this process: one, whose file says how large its window is."""

    endpoint = Endpoint(provider="local", base_url="http://local/v1", source="here")

    def names(self) -> tuple[str, ...]:
        return ("small",)

    def choice(self) -> DefaultModel | None:
        return None

    def traits(self, name: str) -> ModelTraits:
        return ModelTraits(local=True, plain=True, window_tokens=8_192)

    def what_helps(self, name: str) -> str:
        return ""

    async def close(self) -> None:
        pass


def test_what_is_learned_of_a_model_of_this_process_is_used() -> None:
    """But its window is that of its file."""
    registry = ModelRegistry(own=OwnModel())
    registry.learn("local/small", calling="text", tokens_per_s=(100.0, 10.0), window_tokens=50)
    known = registry.traits("local/small")

    assert (known.calling, known.tokens_per_s, known.window_tokens) == ("text", (100.0, 10.0), 8_192)
    assert known.local and known.plain


async def test_tools_are_not_offered_where_the_catalog_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """By the entry of a user's own catalog, too."""
    (tmp_path / "own.toml").write_text('[[model]]\nmatch = ["plain"]\nwindow = 8000\noutput = 500\ntools = false\n')
    monkeypatch.setenv("PERDURE_CATALOG", str(tmp_path / "own.toml"))
    registry = ModelRegistry(endpoints=find_providers({"OPENAI_BASE_URL": "http://127.0.0.1:9"}))

    assert not registry.traits("openai/plain").takes_tools
    assert registry.traits("openai/plain").max_output_tokens == 500
    assert registry.traits("openai/other").takes_tools
