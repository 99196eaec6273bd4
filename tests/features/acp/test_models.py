"""The choice of a model for a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from perdure import AsyncPerdure
from perdure.core.ids import ConversationId
from perdure.settings import Settings
from perdure.testing import ScriptedModel, says
from tests.features.acp.editors import Desk, until, wired
from tests.providers.fake_provider import fake_provider
from tests.support.library import MODEL, open_async

OTHER = "test/other"


def chosen(answered: Any) -> tuple[str, str | None]:
    """(the model of a session, which of those that it can have is called the agent's own) of an answer's options."""
    (option,) = answered.config_options
    assert (option.id, option.category, {MODEL, OTHER} <= {one.value for one in option.options}) == (
        "model",
        "model",
        True,
    )
    (own,) = [one.value for one in option.options if one.description is not None]
    return option.current_value, own


async def opened(path: Path, own: ScriptedModel, other: ScriptedModel) -> AsyncPerdure:
    """A store with two models, of which agents have the first if nobody says more."""
    settings = replace(Settings(), model=MODEL, embedding="none")
    return await AsyncPerdure.open(path, models={MODEL: own, OTHER: other}, settings=settings)


async def choose(desk: Desk, session: str, value: str) -> tuple[str, str | None]:
    """Choose a model for a session; what its options are then."""
    return chosen(await desk.connection.set_config_option(config_id="model", session_id=session, value=value))


async def test_a_session_can_have_a_model_of_its_own(tmp_path: Path) -> None:
    """It is answered by that one, also after it is loaded or forked; the agent and its other sessions keep theirs."""
    own, other = ScriptedModel(says("own")), ScriptedModel(says("other"), says("forked"))
    async with await opened(tmp_path / "a.db", own, other) as perdure:
        agent = await perdure.create_agent("Ada", model=MODEL)
        async with wired(perdure, agent, []) as desk:
            connection = desk.connection
            begun = await connection.new_session(cwd="/", mcp_servers=[])
            first, second = begun.session_id, await desk.begin()

            assert chosen(begun) == (MODEL, MODEL)
            assert await choose(desk, first, OTHER) == (OTHER, MODEL)
            await desk.say(first, "hello")
            await desk.say(second, "hello")
            assert (desk.editor.texts(first), desk.editor.texts(second)) == ("other", "own")
            loaded = await connection.load_session(cwd="/", session_id=first, mcp_servers=[])
            forked = await connection.fork_session(cwd="/", session_id=first)
            assert chosen(loaded) == chosen(forked) == (OTHER, MODEL)
            assert chosen(await connection.resume_session(cwd="/", session_id=second)) == (MODEL, MODEL)
            await desk.say(forked.session_id, "hello")
            assert desk.editor.texts(forked.session_id) == "forked"
            assert (await perdure.agent("Ada")).info.model == MODEL


async def test_with_the_agents_own_model_a_session_follows_the_agent(tmp_path: Path) -> None:
    """Whatever that is later."""
    async with await opened(tmp_path / "a.db", ScriptedModel(), ScriptedModel()) as perdure:
        agent = await perdure.create_agent("Ada", model=MODEL)
        async with wired(perdure, agent, []) as desk:
            session = await desk.begin()
            await choose(desk, session, OTHER)

            assert await choose(desk, session, MODEL) == (MODEL, MODEL)
            await agent.update(model=OTHER)
            assert chosen(await desk.connection.resume_session(cwd="/", session_id=session)) == (OTHER, OTHER)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [("model", "nobody/x", "nobody/x"), ("model", "", "model"), ("colour", MODEL, "colour"), ("model", True, "True")],
)
async def test_an_option_that_is_not_there_changes_nothing(
    tmp_path: Path, option: str, value: str | bool, why: str
) -> None:
    """The editor is told which, as wrong parameters."""
    async with await open_async(tmp_path / "a.db") as perdure:
        agent = await perdure.create_agent("Ada", model=MODEL)
        async with wired(perdure, agent, []) as desk:
            session = await desk.begin()
            with pytest.raises(acp.RequestError, match=why) as error:
                await desk.connection.set_config_option(config_id=option, session_id=session, value=value)
            with pytest.raises(acp.RequestError, match="open session"):
                await desk.connection.set_config_option(config_id="model", session_id="nope", value=MODEL)

            assert error.value.code == -32602
            assert "model" not in (await agent.find_conversation(ConversationId(session))).settings


async def test_models_of_a_provider_come_once_it_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session does not wait for them to begin."""
    answers = {"/v1/models": {"data": [{"id": "gpt-a"}, {"id": "gpt-b"}]}}
    async with fake_provider(answers, delay_s=0.2) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        async with await opened(tmp_path / "a.db", ScriptedModel(), ScriptedModel()) as perdure:
            agent = await perdure.create_agent("Ada", model=MODEL)
            async with wired(perdure, agent, []) as desk:
                begun = await desk.connection.new_session(cwd="/", mcp_servers=[])
                await until(lambda: bool(desk.editor.of(schema.ConfigOptionUpdate)))
                (update,) = desk.editor.of(schema.ConfigOptionUpdate)

                assert begun.config_options is not None
                assert "openai/gpt-b" not in {one.value for one in begun.config_options[0].options}
                assert {"openai/gpt-a", "openai/gpt-b"} <= {one.value for one in update.config_options[0].options}
