"""Messages that are taken back before their turn, and answers that are made again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Conflict, ModelNotFound, NotFound, RunFailed
from perdure.engine.compaction.after_runs import CallbackWorker
from perdure.library.agent import AsyncAgent
from perdure.testing import fails, says
from tests.support.library import SlowCaller, SlowSpeaker, open_async


async def texts(agent: AsyncAgent) -> list[str]:
    return [message.text for message in await agent.messages()]


async def until_ended(agent: AsyncAgent, run_id: str) -> None:
    async for _ in agent.follow(run_id):  # type: ignore[arg-type]
        pass


async def speaking(perdure: AsyncPerdure, model: SlowSpeaker, **fields: Any) -> tuple[AsyncAgent, str]:
    """An agent in the middle of an answer, and the run."""
    agent = await perdure.create_agent(**fields)
    run = (await agent.submit("count")).run
    await model.speaking.wait()
    return agent, run.id


async def test_a_message_that_waits_is_taken_back(tmp_path: Path) -> None:
    """It is in no history and never answered; the same request again is not sent again."""
    model = SlowSpeaker("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent, first = await speaking(perdure, model)
        second = (await agent.submit("never mind", idempotency_key="k")).run
        third = (await agent.submit("and then?")).run
        assert [[draft.parts[0].text for draft in one.drafts] for one in await agent.waiting()] == [  # type: ignore[union-attr]
            [],
            ["never mind"],
            ["and then?"],
        ]

        assert await agent.take_back(second.id) == "never mind"
        assert (await agent.submit("never mind", idempotency_key="k")).run.id == second.id
        model.go.set()
        await until_ended(agent, second.id)
        await until_ended(agent, third.id)
        assert await texts(agent) == ["count", "one two", "and then?", "one two"]
        assert (await agent.run(second.id)).status == "cancelled"
        for ended in (first, second.id):
            with pytest.raises(Conflict):
                await agent.take_back(ended)  # type: ignore[arg-type]
        other = await perdure.create_agent()
        with pytest.raises(NotFound):
            await other.take_back(third.id)


@pytest.mark.parametrize("waits_for", ["a person", "the model"])
async def test_a_message_that_waits_is_cancelled_at_once(
    tmp_path: Path, waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the run before it waits for; the message is in no history, and the next one has its turn. Its end is
    reported at once, too."""
    woken: list[CallbackWorker] = []
    monkeypatch.setattr(CallbackWorker, "wake", lambda worker: woken.append(worker))
    model = SlowCaller("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent, first = await speaking(perdure, model, agent_type="memgpt_v2_agent", tools=("send_message",))
        second, third = [(await agent.submit(text)).run for text in ("never mind", "and then?")]
        if waits_for == "a person":
            await agent.require_approval("send_message")
            model.go.set()
            await until_ended(agent, first)
            assert [call.name for call in await agent.pending()] == ["send_message"]

        woken.clear()
        cancelled = await agent.cancel(second.id)
        assert woken
        assert (cancelled.status, cancelled.stop_reason, cancelled.ended) == ("cancelled", "cancelled", True)
        await until_ended(agent, second.id)
        assert [run.id for run in await agent.cancel_all()] == [third.id, first]
        assert {run.status for run in [await agent.run(run.id) for run in await agent.runs()][:2]} == {"cancelled"}
        await until_ended(agent, first)
        assert "never mind" not in await texts(agent) and await agent.waiting() == []


async def test_a_failed_answer_is_tried_again(tmp_path: Path) -> None:
    """The message is not sent a second time, and a second press is the same try."""
    script = [fails(), says("Good morning.")]
    async with await open_async(tmp_path / "agents.db", *script) as perdure:
        agent = await perdure.create_agent()
        with contextlib.suppress(RunFailed):
            await agent.send("hello")
        (failed,) = await agent.runs()

        again = (await agent.try_again(failed.id)).run
        await until_ended(agent, again.id)
        assert (await agent.try_again(failed.id)).run.id == again.id
        said = await agent.messages()
        assert [(one.role, one.name) for one in said[1:2]] == [("system", "try_again")]
        assert [one.text for one in said if one.role != "system"] == ["hello", "Good morning."]
        with pytest.raises(Conflict):
            await agent.try_again(again.id)


async def test_only_the_last_answer_is_tried_again(tmp_path: Path) -> None:
    async with await open_async(tmp_path / "agents.db", fails(), says("Good morning.")) as perdure:
        agent = await perdure.create_agent()
        with contextlib.suppress(RunFailed):
            await agent.send("hello")
        (failed,) = await agent.runs()
        await agent.send("hello again")

        with pytest.raises(Conflict):
            await agent.try_again(failed.id)


async def test_a_stopped_answer_stays_and_is_tried_again(tmp_path: Path) -> None:
    model = SlowSpeaker("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent, first = await speaking(perdure, model)
        await agent.cancel(first)  # type: ignore[arg-type]
        await until_ended(agent, first)
        entry = (await agent.transcript())[-1]
        assert (entry.message.text, entry.stopped, entry.failure) == ("one ", True, None)

        model.go.set()
        await until_ended(agent, (await agent.try_again(first)).run.id)  # type: ignore[arg-type]
        assert [text for text in await texts(agent) if "one" in text] == ["one ", "one two"]


async def test_a_sent_message_that_is_stopped_stays_and_is_tried_again(tmp_path: Path) -> None:
    """What `send_message` had said of it; the next request has it too, as a call that did not run."""
    model = SlowCaller("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent, first = await speaking(perdure, model, agent_type="memgpt_v2_agent", tools=("send_message",))
        await agent.cancel(first)  # type: ignore[arg-type]
        await until_ended(agent, first)
        *_, said, closed = await agent.transcript()
        assert (said.message.text, closed.stopped, closed.failure) == ("one ", True, None)
        assert said.message.calls[0].speech == "one "

        model.go.set()
        await until_ended(agent, (await agent.try_again(first)).run.id)  # type: ignore[arg-type]
        assert (await agent.transcript())[-2].message.text == "one two"


async def test_a_message_is_answered_again_in_a_new_conversation(tmp_path: Path) -> None:
    """By another model, with what was said before, and without the first answer."""
    async with await open_async(tmp_path / "agents.db", says("One."), says("Two."), says("Other.")) as perdure:
        agent = await perdure.create_agent()
        await agent.send("one")
        await agent.send("two")
        run = (await agent.runs())[0]

        made, accepted = await agent.answer_again(run.id)
        await until_ended(agent, accepted.run.id)
        said = await agent.messages(conversation=made.id)
        assert [message.text for message in said] == ["one", "One.", "two", "Other."]


async def test_an_answer_of_another_try_is_answered_again(tmp_path: Path) -> None:
    """The message of the first try is asked, however often it was tried again."""
    script = [fails(), fails(), says("One."), says("Other.")]
    async with await open_async(tmp_path / "agents.db", *script) as perdure:
        agent = await perdure.create_agent()
        with contextlib.suppress(RunFailed):
            await agent.send("one")
        for _ in range(2):
            await until_ended(agent, (await agent.try_again((await agent.runs())[0].id)).run.id)

        made, accepted = await agent.answer_again((await agent.runs())[0].id)
        await until_ended(agent, accepted.run.id)
        said = await agent.messages(conversation=made.id)
        assert [message.text for message in said] == ["one", "Other."]


async def test_an_unknown_model_leaves_no_conversation(tmp_path: Path) -> None:
    async with await open_async(tmp_path / "agents.db", says("One.")) as perdure:
        agent = await perdure.create_agent()
        await agent.send("one")
        with pytest.raises(ModelNotFound):
            await agent.answer_again((await agent.runs())[0].id, model="no/such")
        assert len(await agent.conversations()) == 1
