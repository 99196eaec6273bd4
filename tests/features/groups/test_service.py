"""Groups of agents as programs use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import GroupBusy, GroupTurnEnded, InvalidInput, NotFound, SpeakerEvent, SpeakerStarted
from perdure.testing import fails, says
from tests.support.library import SlowSpeaker, open_async, open_sync


def test_groups_are_made_found_changed_and_deleted(tmp_path: Path) -> None:
    """Of agents, names or ids; by id, the beginning of it or description; the object stays as it was looked up."""
    with open_sync(tmp_path / "agents.db") as perdure:
        ann, ben, mia = (perdure.create_agent(name) for name in ("ann", "ben", "mia"))
        block = perdure.blocks.create("team", "Goal: ship.")
        pair = perdure.groups.create(
            "round_robin", agents=[ann, "ben"], description="pair", shared_block_ids=[block.id], max_tokens=900
        )
        led = perdure.groups.create("dynamic", agents=[ann.id], manager=mia, termination_token="STOP")
        perdure.groups.create("round_robin", agents=[ben], hidden=True)

        assert (pair.info.agent_ids, pair.info.max_tokens, pair.kind) == ((ann.id, ben.id), 900, "round_robin")
        assert (led.info.manager_agent_id, led.info.termination_token) == (mia.id, "STOP")
        assert [one.value for one in ben.blocks.list() if one.label == "team"] == ["Goal: ship."]
        assert [one.id for one in perdure.groups.list()] == [led.id, pair.id]
        assert [one.id for one in perdure.groups.list(agent_id=mia.id)] == [led.id]
        assert [one.id for one in perdure.groups.list(kind="round_robin", limit=1, after=led.id)] == [pair.id]
        assert {perdure.groups.get(name).id for name in (pair.id, pair.id[:20], "pair")} == {pair.id}

        changed = pair.update(agent_ids=[mia.id, ben.id], description="two", max_tokens=None)
        assert (changed.info.agent_ids, changed.info.max_tokens) == ((mia.id, ben.id), None)
        assert (pair.info.description, perdure.groups.get("two").info) == ("pair", changed.info)
        assert not [one for one in ann.blocks.list() if one.label == "team"]
        assert pair.messages() == []
        led.delete()
        perdure.groups.delete(pair.id)
        assert perdure.groups.list() == []


@pytest.mark.parametrize(
    ("kind", "agents", "options", "problem"),
    [
        ("round_robin", [], {}, "at least one agent"),
        ("round_robin", ["ann", "ann"], {}, "more than once"),
        ("supervisor", ["ann"], {}, "needs a manager"),
        ("supervisor", ["ann"], {"manager": "ann"}, "not a participant"),
        ("round_robin", ["ann"], {"max_turns": 0}, "max_turns"),
        ("round_robin", ["ann"], {"max_cost_usd": -1}, "max_cost_usd"),
        ("chaos", ["ann"], {}, "kind is 'chaos'"),
    ],
)
def test_a_group_that_can_not_be_is_refused(
    tmp_path: Path, kind: Any, agents: list[str], options: dict[str, Any], problem: str
) -> None:
    """Before anything is stored."""
    with open_sync(tmp_path / "agents.db") as perdure:
        perdure.create_agent("ann")
        with pytest.raises(InvalidInput, match=problem):
            perdure.groups.create(kind, agents=agents, **options)
        with pytest.raises(NotFound, match="there are 'ann'"):
            perdure.groups.create("round_robin", agents=["eve"])
        with pytest.raises(NotFound, match="there is none yet"):
            perdure.groups.get("pair")
        assert perdure.groups.list() == []


def test_a_group_answers(tmp_path: Path) -> None:
    """The reply and the transcript say who says what; the same key is the same turn, and a reset begins anew."""
    script = [says("To Turin."), fails("no power"), says("By bike.")]
    with open_sync(tmp_path / "agents.db", *script) as perdure:
        ann, ben = perdure.create_agent("Ann"), perdure.create_agent("Ben")
        pair = perdure.groups.create("round_robin", agents=[ann, ben])
        reply = pair.send("Where?", idempotency_key="k")
        again = pair.send("Where?", idempotency_key="k")
        second = pair.send("How?", max_steps=2)

        assert (reply.text, reply.answer, reply.stop_reason) == ("Ann: To Turin.", "To Turin.", "end_turn")
        assert [(one.speaker.name, one.problem) for one in reply.replies] == [("Ann", None), ("Ben", "no power")]
        assert (again.turn, again.text) == (reply.turn, reply.text)
        assert second.text == "Ann: By bike.\n\nBen: OK."
        shown = [(one.kind, one.sender_name, one.text) for one in pair.messages()]
        assert shown[:3] == [("user", "", "Where?"), ("speech", "Ann", "To Turin."), ("failure", "Ben", "no power")]
        assert [one.text for one in pair.messages(limit=2, newest_first=True)] == ["OK.", "By bike."]
        assert [one.seq for one in pair.messages(after_seq=3)] == [4, 5]
        assert pair.cancel() == []
        pair.reset()
        assert pair.messages() == []
        events = list(pair.stream("And now?"))
        assert isinstance(events[0], SpeakerStarted) and isinstance(events[-1], GroupTurnEnded)
        assert {one.speaker.name for one in events if isinstance(one, SpeakerEvent)} == {"Ann", "Ben"}


async def test_a_turn_is_awaited_rejected_and_cancelled(tmp_path: Path) -> None:
    """A second message waits behind the first or is refused; `cancel` ends both."""
    model = SlowSpeaker("To ", "Turin.")
    perdure = await open_async(tmp_path / "agents.db", model=model)
    async with perdure:
        ann = await perdure.create_agent("Ann")
        alone = await perdure.groups.create("round_robin", agents=[ann])
        first = await alone.submit("Where?")
        await model.speaking.wait()
        with pytest.raises(GroupBusy, match="wait until it has ended"):
            await alone.send("How?", if_busy="reject")
        second = await alone.submit("When?")
        with pytest.raises(GroupBusy):
            await alone.reset()
        with pytest.raises(NotFound):
            await alone.cancel(7)
        cancelled = [*await alone.cancel(second.seq), *await alone.cancel()]
        events = [event async for event in perdure.groups.by_id(first.group_id).follow(first)]

        assert [turn.seq for turn in cancelled] == [second.seq, first.seq]
        assert isinstance(events[-1], GroupTurnEnded)
        assert (events[-1].turn.stop_reason, events[-1].turn.status) == ("cancelled", "cancelled")
        assert (await perdure.groups.by_id(second.group_id).reply(second)).stop_reason == "cancelled"


def test_the_fields_of_a_message_are_checked(tmp_path: Path) -> None:
    """Before a turn begins."""
    with open_sync(tmp_path / "agents.db") as perdure:
        alone = perdure.groups.create("round_robin", agents=[perdure.create_agent("ann")])
        wrong: list[tuple[Any, dict[str, Any]]] = [(3, {}), ("", {}), ("a", {"max_steps": 0}), ("a", {"if_busy": "x"})]
        for text, options in wrong:
            with pytest.raises(InvalidInput):
                alone.send(text, **options)
        with pytest.raises(InvalidInput):
            alone.messages(limit=0)
        assert alone.messages() == []


@pytest.mark.parametrize("value", [5, "message-1"])
def test_only_a_group_with_a_companion_has_a_message_that_was_read_last(tmp_path: Path, value: Any) -> None:
    """And its id is a text."""
    with open_sync(tmp_path / "agents.db") as perdure:
        alone = perdure.groups.create("round_robin", agents=[perdure.create_agent("ann")])
        with pytest.raises(InvalidInput, match="last_message_id"):
            alone.update(last_message_id=value)
        assert perdure.groups.get(alone.id).info.last_message_id is None


async def test_an_agent_with_a_companion_answers_its_group_as_it_answers_its_user(tmp_path: Path) -> None:
    """In its first conversation, with the words as they are; the turn counts for its companion, which says nothing."""
    perdure = await open_async(tmp_path / "agents.db", says("It is four."), says("Bye."))
    async with perdure:
        ann = await perdure.create_agent("Ann", sleeptime=True)
        info = await ann.companion.info()
        assert info is not None
        group = await perdure.groups.get(info.group.id)
        reply = await group.send("What time is it?")
        await ann.send("Bye")
        told = [(one.role, one.text) for one in await ann.messages()]
        heard = [(one.kind, one.sender_name, one.text) for one in await group.messages()]
        after = await ann.companion.info()

        assert (reply.answer, reply.stop_reason) == ("It is four.", "end_turn")
        assert told[0] == ("user", "What time is it?")
        assert ("assistant", "Bye.") in told
        assert heard == [("user", "", "What time is it?"), ("speech", "Ann", "It is four.")]
        assert after is not None and after.turns == 2
        await group.reset()
        assert await group.messages() == []
        assert [(one.role, one.text) for one in await ann.messages()] == told
