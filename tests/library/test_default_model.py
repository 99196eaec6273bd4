"""Agents that follow the default model: when they change it, what is said of it, and what the new model is shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure import AsyncAgent, AsyncPerdure, Verdict, hook
from perdure.context.sections.assemble import canonical
from perdure.context.window.extract import extract
from perdure.core.errors import ModelNotFound
from perdure.core.events import ModelChanged
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.messages import Message, Text
from perdure.core.models import EXTRACTIVE, NOTICES, hide_notice, without_notice
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls
from tests.providers.fake_provider import fake_provider
from tests.support.library import MODEL

NOTICE = NOTICES["en"]


async def open_store(
    path: Path, model: str = "", *, speaker: ScriptedModel | None = None, hooks: tuple[object, ...] = ()
) -> AsyncPerdure:
    """A store with the setting `model` for its default; `speaker` answers as `test/scripted`."""
    models = {MODEL: speaker or ScriptedModel()}
    settings = Settings(model=model, embedding="none")
    return await AsyncPerdure.open(path / "agents.db", models=models, settings=settings, hooks=hooks)  # type: ignore[arg-type]


async def changes_of(perdure: AsyncPerdure, agent: AsyncAgent, run_id: RunId) -> list[ModelChanged]:
    """The changes of the model that a run tells of."""
    run = await agent.run(run_id)
    events = await perdure.app.store.read(lambda tx: tx.events.list(run.key))
    return [event.event for event in events if isinstance(event.event, ModelChanged)]


async def tell_built_in(path: Path) -> None:
    """Tell an agent that was made without a model something, where there is only the built-in program."""
    async with await open_store(path) as perdure:
        agent = await perdure.create_agent("ada", settings={"auto_recall": True})
        reply = await agent.send("My name is Ada.")
        assert NOTICE in reply.text and agent.info.follows_default


@pytest.mark.uses("extractive")
async def test_an_agent_follows_the_default_as_soon_as_there_is_a_model(tmp_path: Path) -> None:
    """Its next run has that model, tells of the change once, and the list of agents shows it before."""
    await tell_built_in(tmp_path)
    speaker = ScriptedModel()
    async with await open_store(tmp_path, MODEL, speaker=speaker) as perdure:
        agent = await perdure.agent("ada")
        window = (await agent.context()).window_tokens
        replies = [await agent.send(text) for text in ("Who am I?", "And now?")]
        steps = await agent.steps()

        assert agent.info.model == MODEL == (await perdure.agents())[0].info.model
        assert [reply.text for reply in replies] == ["OK.", "OK."]
        assert [await changes_of(perdure, agent, reply.run_id) for reply in replies] == [
            [ModelChanged(EXTRACTIVE, MODEL)],
            [],
        ]
        assert [step.model for step in steps[:2]] == [MODEL, MODEL]
        assert window == (await agent.context()).window_tokens == 128_000


@pytest.mark.uses("extractive")
async def test_the_new_model_is_not_shown_what_the_program_says_of_itself(tmp_path: Path) -> None:
    """History keeps it, requests leave it out, and each is rebuilt byte for byte, the old ones too."""
    await tell_built_in(tmp_path)
    speaker = ScriptedModel(calls("conversation_search", query="language model program notes"))
    async with await open_store(tmp_path, MODEL, speaker=speaker) as perdure:
        agent = await perdure.agent("ada")
        await agent.send("Is there a language model, or a small program that notes?")
        sent = list(speaker.requests)
        rebuilt = [await agent.request(step.id) for step in await agent.steps()]

        assert len(sent) == 2 and "Noted: Name: Ada." in str(sent[0].messages)
        assert all(b"no language model" not in canonical(request) for request in sent)
        assert any(NOTICE in message.text for message in await agent.messages())
        assert {request.model for request in rebuilt} == {EXTRACTIVE, MODEL}


@pytest.mark.uses("extractive")
async def test_a_run_that_waits_follows_when_it_begins(tmp_path: Path) -> None:
    """With a hook before the model a run is accepted first and begins later."""

    @hook("before_model")
    def watch(payload: object) -> Verdict | None:
        return None

    await tell_built_in(tmp_path)
    async with await open_store(tmp_path, MODEL, hooks=(watch,)) as perdure:
        agent = await perdure.agent("ada")
        reply = await agent.send("hello")

        assert reply.text == "OK."
        assert await changes_of(perdure, agent, reply.run_id) == [ModelChanged(EXTRACTIVE, MODEL)]


@pytest.mark.uses("extractive")
async def test_a_pinned_model_stays(tmp_path: Path) -> None:
    """One that was named, also if it is the built-in program; without the pin the agent follows at once."""
    async with await open_store(tmp_path) as perdure:
        await perdure.create_agent("named", model=EXTRACTIVE)
        await (await perdure.create_agent("pinned")).update(model=EXTRACTIVE)
    async with await open_store(tmp_path, MODEL) as perdure:
        for name in ("named", "pinned"):
            agent = await perdure.agent(name)
            reply = await agent.send("hello")
            freed = await agent.update(model=None)

            assert (agent.info.model, agent.info.follows_default) == (EXTRACTIVE, False)
            assert reply.text.startswith("Hello!") and not await changes_of(perdure, agent, reply.run_id)
            assert (freed.info.model, freed.info.follows_default) == (MODEL, True)


@pytest.mark.uses("extractive")
async def test_a_key_that_goes_leaves_the_agent_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key replaces the built-in program; without it the message is refused, and not answered by that."""
    await tell_built_in(tmp_path)
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]}
    async with fake_provider({"/v1/chat/completions": answer}) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567")
        async with await open_store(tmp_path) as perdure:
            assert (await (await perdure.agent("ada")).send("hello")).text == "Hello."
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    async with await open_store(tmp_path) as perdure:
        agent = await perdure.agent("ada")
        with pytest.raises(ModelNotFound, match=r"openai/gpt-4\.1-mini"):
            await agent.send("hello")

        assert agent.info.model == "openai/gpt-4.1-mini"


@pytest.mark.uses("extractive")
async def test_the_window_is_that_of_the_new_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent's own window stays, as far as the model has it."""
    async with await open_store(tmp_path) as perdure:
        await perdure.create_agent("own", settings={"context_window_tokens": 20_000})
        await perdure.create_agent("large", settings={"context_window_tokens": 100_000})
        await perdure.create_agent("none")
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-1234567")
    async with await open_store(tmp_path, "mistral/mixtral-8x7b") as perdure:
        most = perdure.app.models.most_window_tokens("mistral/mixtral-8x7b")
        windows = {
            name: (await (await perdure.agent(name)).context()).window_tokens for name in ("own", "large", "none")
        }

        assert most == 32_000
        assert windows == {"own": 20_000, "large": most, "none": most}


def test_a_summary_leaves_the_notice_out() -> None:
    """Both the extract without a model, and what a model is given to summarise."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    message = Message(
        id=MessageId("message-1"),
        agent_id=AgentId("agent-1"),
        seq=1,
        conversation_seq=0,
        role="assistant",
        parts=(Text(f"Noted: Name: Ada.\n\n{NOTICE}"),),
        created_at=at,
        occurred_at=at,
    )

    assert "perdure" in str(extract([replace(message, role="user")]))
    assert "perdure" not in str(extract([message])) and "OPENAI" not in str(extract([message]))
    assert without_notice(message.text) == hide_notice(message).text == "Noted: Name: Ada."
