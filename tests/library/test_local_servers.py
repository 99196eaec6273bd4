"""An agent on a server of one's own: its window, its silence, its tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, ConversationBusy, Delta
from perdure.core.messages import Text
from perdure.core.models import EXTRACTIVE, ModelPiece, ModelProgress, ModelRequest
from perdure.core.runs import RunOptions
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.settings import Settings
from perdure.testing import InlineStore, LocalServer, ScriptedModel, Status, calls, says, writes_call
from perdure.testing.http_model import HttpLine
from tests.support.library import MODEL

HANDLE = "openai/local"
TURNS = 60 if os.environ.get("PERDURE_FAULTS") == "full" else 36


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the address of a server, which then is the one of the environment."""
    return lambda server: monkeypatch.setenv("OPENAI_BASE_URL", server.url)


async def opened(path: Path | None = None) -> AsyncPerdure:
    settings = Settings(embedding="none")
    if path is not None:
        return await AsyncPerdure.open(path / "a.db", settings=settings)
    return await AsyncPerdure.open(settings=settings, store=InlineStore())


async def talk(agent: AsyncAgent, count: int) -> list[str]:
    filler = "and the other rooms of this floor have the same keys as before, " * 4
    return [(await agent.send(f"Note {n}: room {n + 10} has key {n * 37 % 91}, {filler}")).text for n in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "window_tokens", "facts"),
    [
        ("llamacpp", 4_096, {}),
        ("llamacpp", 4_096, {"has_listing": False}),
        ("llamacpp", 2_048, {"tools": []}),
        ("llamacpp", 2_048, {"has_listing": False, "tools": []}),
        ("vllm", 4_096, {"has_listing": False}),
        ("lmstudio", 4_096, {"has_listing": False}),
        ("lmstudio", 2_048, {"has_listing": False}),
        ("ollama", 4_096, {}),
    ],
)
async def test_a_long_talk_loses_no_message(near: Any, kind: Any, window_tokens: int, facts: dict[str, Any]) -> None:
    """Though the window fills several times; one that no listing tells is learned from a refusal."""
    tools = {"tools": facts["tools"]} if "tools" in facts else {}
    served = {name: value for name, value in facts.items() if name != "tools"}
    async with LocalServer(kind=kind, window_tokens=window_tokens, otherwise=says("Noted."), **served) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE, **tools)
            answers = await talk(agent, TURNS)
            failed = [step for step in await agent.steps(limit=100) if step.status != "success"]
            known = perdure.app.models.traits(HANDLE).window_tokens

    assert answers == ["Noted."] * TURNS
    assert all(row.prompt_tokens < window_tokens for row in server.served)
    assert len(failed) <= (4 if served else 0)
    # LM Studio's refusal has no figures, so it is guessed: smaller than what was refused.
    assert known is not None and (known == window_tokens or (kind == "lmstudio" and served and known < 16_000))


async def test_a_request_that_can_not_fit_says_so(near: Any) -> None:
    """In words for people, with the figures of the server; it is not sent for ever."""
    async with LocalServer(window_tokens=600, has_listing=False) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE, profile="full")
            reply = await asyncio.gather(agent.send("Hello?"), return_exceptions=True)

    assert "can't be made to fit: a window of 600 tokens" in str(reply[0])
    assert len(server.requests) <= 2


async def test_what_a_slow_model_does_is_told_and_never_stored(near: Any) -> None:
    """Each part of the prompt that it has read, before its first word."""
    async with LocalServer(says("Hello Ada.")) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE)
            sent = [one async for one in agent.stream("I am Ada.", background=True)]
            run = (await agent.runs())[0]
            stored = await perdure.app.store.read(lambda tx: tx.events.list(run.key))

    told = [one.text for one in sent if isinstance(one, Delta) and one.kind == "progress"]
    total = f"{server.served[-1].prompt_tokens:,}"
    assert told[0].startswith(f"reading 0 of {total} tokens")
    assert told[-1].startswith(f"reading {total} of {total} tokens")
    assert "reading" not in str([event.event for event in stored])
    assert server.requests[-1]["return_progress"] is True


@pytest.mark.parametrize("kind", ["llamacpp", "ollama"])
async def test_a_server_that_refuses_tools_is_asked_without(near: Any, kind: Any, caplog: Any) -> None:
    """The message is answered, it is said once, and from then on no tools are sent."""
    async with LocalServer(kind=kind, tools="refused", has_listing=False, otherwise=says("Hello.")) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE)
            answers = [(await agent.send("Hi")).text for _ in range(2)]
            traits = perdure.app.models.traits(HANDLE)

    assert answers == ["Hello.", "Hello."]
    assert [bool(request.get("tools")) for request in server.requests] == [True, False, False]
    assert (traits.takes_tools, traits.calling) == (False, "none")
    assert sum("takes no tools" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("shown", ["shown", "unseen"])
async def test_a_template_that_shows_no_tools_is_noticed(near: Any, shown: Any, caplog: Any) -> None:
    """By the tokens that its server counts; one that shows them is left alone."""
    async with LocalServer(tools=shown, otherwise=says("Hello.")) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE, profile="full")
            for _ in range(2):
                await agent.send("Hi")
            traits = perdure.app.models.traits(HANDLE)

    assert traits.takes_tools == (shown == "shown")
    assert any("template does not show" in record.getMessage() for record in caplog.records) != traits.takes_tools
    assert bool(server.requests[-1].get("tools")) == traits.takes_tools


@pytest.mark.parametrize("first_in_text", [False, True])
async def test_how_it_calls_changes_no_conversation_of_a_large_model(near: Any, first_in_text: bool) -> None:
    """Though it writes every other call as text."""
    native, written = (
        calls("conversation_search", query="Ada"),
        writes_call("fence", "conversation_search", query="Bob"),
    )
    lines = [written, native] if first_in_text else [native, written]
    script = [line for one in lines * 2 for line in (one, says("Done."))]
    async with LocalServer(*script, window_tokens=131_072, parameters=70_000_000_000) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE)
            answers = [(await agent.send(f"Question {n}?")).text for n in range(4)]
            known = perdure.app.models.traits(HANDLE).calling

    assert answers == ["Done."] * 4
    assert known == ("text" if first_in_text else "native")
    assert len({str((one["messages"][0], one["tools"])) for one in server.requests}) == 1


async def test_a_template_without_results_is_sent_texts(near: Any) -> None:
    """Also of calls that another model made before; nothing is sent again as if the server were overloaded."""

    def answer(request: Mapping[str, Any]) -> HttpLine:
        if any(one["role"] == "tool" or one.get("tool_calls") for one in request["messages"]):
            return Status(500, {"error": {"message": "Conversation roles must alternate user/assistant/user/..."}})
        is_told = "Result of the call" in request["messages"][-1]["content"]
        return says("Done.") if is_told else writes_call("bare", "conversation_search", query="Ada")

    async with LocalServer(otherwise=answer, kind="vllm", window_tokens=8_192, parameters=70_000_000_000) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE, profile="full")
            answers = [(await agent.send("Who am I?")).text for _ in range(2)]

    roles = [one["role"] for one in server.requests[-1]["messages"]]
    assert answers == ["Done."] * 2
    assert len(server.requests) == 5  # one of them was refused
    assert roles == ["system", *(["user", "assistant"] * 4)[:-1]]
    assert '"query":"Ada"' in server.requests[-1]["messages"][2]["content"]


async def test_an_answer_always_has_a_limit(near: Any) -> None:
    """A quarter of the window at most, as the room that is kept for it."""
    async with LocalServer(otherwise=says("Hello."), window_tokens=8_192) as server:
        near(server)
        async with await opened() as perdure:
            agent = await perdure.create_agent("ada", model=HANDLE, profile="full")
            await agent.send("Hi")
            await (await agent.update(settings={"profile": "full", "max_output_tokens": 100})).send("Hi")

    assert [request["max_tokens"] for request in server.requests] == [2_048, 100]


@pytest.mark.uses("extractive")
async def test_who_names_no_model_gets_that_of_the_server(near: Any, tmp_path: Path) -> None:
    """It is asked and tried once, whatever program opens the store later; an agent of before follows."""
    async with await opened(tmp_path) as perdure:
        early = await perdure.create_agent("early")
        assert early.info.model == EXTRACTIVE
    async with LocalServer(calls("note", text="hi"), otherwise=says("Hello.")) as server:
        near(server)
        async with await opened(tmp_path) as perdure:
            assert not server.requests  # opening asks nobody
            agent = await perdure.create_agent("ada")
            assert (agent.info.model, len(server.requests)) == (HANDLE, 1)
        async with await opened(tmp_path) as perdure:
            follows = await perdure.agent("early")
            assert (await follows.send("Hi")).text == "Hello."
            known = perdure.app.models.traits(HANDLE)

    assert len(server.requests) == 2
    assert (known.calling, known.window_tokens, known.server) == ("native", 4_096, "llamacpp")


@pytest.mark.uses("extractive")
async def test_a_server_that_comes_up_later_answers(near: Any, caplog: Any) -> None:
    """Agents that follow the default, as soon as somebody speaks to them, and new ones; it is tried once."""
    async with LocalServer() as gone:
        port = int(gone.url.rpartition(":")[2])
    near(gone)
    caplog.set_level("INFO", "perdure")
    async with await opened() as perdure:
        agents = [await perdure.create_agent(name) for name in ("ada", "bob")]
        before = await agents[0].send("Hi")
        async with LocalServer(calls("note", text="hi"), otherwise=says("Hello."), port=port) as server:
            replies = await asyncio.gather(*(agent.send("Hi") for agent in agents))
            new = await perdure.create_agent("new")

    assert EXTRACTIVE in before.text
    assert [reply.text for reply in replies] == ["Hello."] * 2 and new.info.model == HANDLE
    assert len(server.requests) == 3
    assert sum("a server answers that did not: openai/local" in one.getMessage() for one in caplog.records) == 1


class SlowModel:
    """Answers when it is let; says that it waits before."""

    def __init__(self) -> None:
        self.model = ScriptedModel(otherwise=says("At last."))
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        yield ModelProgress(stage="waiting", waited_s=5)
        self.asked.set()
        await self.may_answer.wait()
        async for piece in self.model.respond(request):
            yield piece


async def test_a_message_that_is_sent_again_gets_the_running_answer() -> None:
    """Once: its client has given up waiting. Another message finds the conversation busy."""
    model = SlowModel()
    async with await AsyncPerdure.open(
        settings=Settings(embedding="none"), store=InlineStore(), models={MODEL: model}
    ) as perdure:
        agent = await perdure.create_agent("ada", model=MODEL)
        first = asyncio.create_task(agent.send("Are you there?", if_busy="reject"))
        await model.asked.wait()
        first.cancel()
        with pytest.raises(ConversationBusy):
            await agent.send("Somebody else?", if_busy="reject")
        again = asyncio.create_task(agent.send("Are you there?", if_busy="reject"))
        await asyncio.sleep(0)
        model.may_answer.set()
        reply = await again
        later = await agent.send("Are you there?", if_busy="reject")
        runs = await agent.runs()

    assert (reply.text, later.text) == ("At last.", "At last.")
    assert reply.run_id != later.run_id and len(runs) == 2
    assert len(model.model.requests) == 2


ASKED = "Are you there?"
OTHERS: list[tuple[NewMessage, dict[str, Any]]] = [
    (NewMessage((Text(ASKED),), otid="a client's own id"), {}),
    (NewMessage((Text(ASKED),), name="bob"), {}),
    (NewMessage((Text(ASKED),), sender_id="agent-123e4567-e89b-42d3-a456-426614174000"), {}),
    (NewMessage((Text(ASKED),)), {"options": RunOptions(max_tokens=5)}),
    (NewMessage((Text(ASKED + "?"),)), {}),
]


@pytest.mark.parametrize("other", OTHERS, ids=["otid", "name", "sender", "options", "text"])
async def test_what_differs_from_a_message_in_anything_is_another_one(other: tuple[NewMessage, dict[str, Any]]) -> None:
    """By the client's id, by who says it, or by how it is to be answered: the conversation is busy."""
    model = SlowModel()
    async with await AsyncPerdure.open(
        settings=Settings(embedding="none"), store=InlineStore(), models={MODEL: model}
    ) as perdure:
        agent = await perdure.create_agent("ada", model=MODEL)
        submit = agent.send_request
        asked = RunRequest(agent_id=agent.id, messages=(NewMessage((Text(ASKED),)),), if_busy="reject")
        first = await submit(asked)
        await model.asked.wait()
        message, options = other
        with pytest.raises(ConversationBusy):
            await submit(replace(asked, messages=(message,), **options))
        again = await submit(asked)
        model.may_answer.set()

    assert again.run.id == first.run.id
