"""Turns of groups as they go on: waiting, refused, cancelled, left by their process, with agents that go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from perdure.core.blocks import Author
from perdure.core.errors import EmptyMessage, GroupBusy, IdempotencyMismatch, InvalidInput, NotFound
from perdure.core.events import Delta
from perdure.core.ids import ConversationId, GroupId, MessageId
from perdure.core.messages import Draft, Text
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import RunFilter
from perdure.features.groups.tables import Groups
from perdure.features.groups.units import GroupRequest, accept_turn, claim_turn, reset_group, update_group
from perdure.features.groups.values import GroupTurn, GroupTurnEnded, SpeakerEvent, SpeakerStarted
from perdure.features.groups.work_tables import GroupTurns
from perdure.library.parts.checks import Page
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing.scripted_model import ScriptedModel, calls, fails, says
from tests.support.groups import Team, open_team

ADA = Author(kind="user", id="ada")


class SlowModel:
    """A model that answers once it may; `asked` is set when it is asked."""

    def __init__(self) -> None:
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self.asked.set()
        await self.may_answer.wait()
        async for one in ScriptedModel(says("at last")).respond(request):
            yield one


def slow(team: Team, name: str) -> SlowModel:
    """Have an agent's model wait from now on."""
    model = SlowModel()
    team.perdure.app.models._models[f"test/{name}"] = model
    return model


async def conversation_of(team: Team, group_id: GroupId) -> ConversationId:
    """The conversation in which the first agent speaks in a group."""

    def find(tx: Tx) -> ConversationId:
        agent_id, _, seq = tx.of(Groups).members(group_id)[0]
        assert seq is not None
        return tx.conversations.get_by_seq(agent_id, seq).id

    return await team.store.read(find)


async def test_bad_messages_are_refused() -> None:
    """Nothing is written: an empty one, one to a group that is not there, to nobody."""
    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")
        with pytest.raises(EmptyMessage):
            await team.send(group.id, " ")
        with pytest.raises(NotFound):
            await team.send(GroupId("group-none"), "Hello")
        await team.store.write(lambda tx: tx.agents.delete(team.agents["Anna"]))
        with pytest.raises(InvalidInput, match="no agents left"):
            await team.send(group.id, "Hello")

        assert await team.store.read(lambda tx: tx.of(GroupTurns).list(group.id)) == []


async def test_a_key_stands_for_one_turn() -> None:
    """Sent again, it is the same turn; another message under it is refused."""
    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")
        first = await team.send(group.id, "Hello", idempotency_key="k")
        again = await team.send(group.id, "Hello", idempotency_key="k")
        with pytest.raises(IdempotencyMismatch):
            await team.send(group.id, "Bye", idempotency_key="k")
        await team.ended(again)

        assert again.seq == first.seq
        assert await team.transcript(group) == ["User: Hello", "Anna: OK."]


async def test_turns_of_a_group_wait_for_each_other() -> None:
    """Or are refused, as the caller likes; the waiting one is shown what the first has said."""
    async with open_team({"Anna": [], "Bob": []}) as team:
        group, model = await team.group("Anna", "Bob"), slow(team, "Anna")
        first = await team.send(group.id, "one")
        second = await team.send(group.id, "two")
        await model.asked.wait()
        with pytest.raises(GroupBusy):
            await team.send(group.id, "three", if_busy="reject")
        with pytest.raises(GroupBusy):
            await reset_group(group.id, team.perdure.app.ports, author=ADA)
        model.may_answer.set()
        await team.ended(second)

        said = ["User: one", "Anna: at last", "Bob: OK.", "User: two", "Anna: at last", "Bob: OK."]
        assert (await team.ended(first)).stop_reason == "end_turn"
        assert await team.transcript(group) == said


async def test_a_cancelled_turn_stops_its_runs() -> None:
    """What was said stays, and nobody else is asked; a turn that waits is never begun."""
    async with open_team({"Anna": [says("A1")], "Bob": [], "Carl": []}) as team:
        group, model = await team.group("Anna", "Bob", "Carl"), slow(team, "Bob")
        turn, waiting = await team.send(group.id, "one"), await team.send(group.id, "two")
        await model.asked.wait()
        assert (await team.turns.cancel(group.id, waiting.seq)).status == "cancelled"
        await team.turns.cancel(group.id, turn.seq)
        stream = await team.stream(turn)

        assert stream == ["Anna", "Bob", "Bob ✗", "cancelled"]
        assert (await team.ended(turn)).status == "cancelled"
        assert await team.transcript(group) == ["User: one", "Anna: A1", "Bob: ✗ it was cancelled"]
        assert await team.stream(waiting) == ["cancelled"]
        runs = await team.perdure.runs.page_of_runs(RunFilter(), Page(99, ascending=True))
        assert sorted(run.status for run in runs) == ["cancelled", "completed"]
        assert (await team.turns.cancel(group.id, turn.seq)).stop_reason == "cancelled"


async def test_an_agent_that_is_deleted_while_it_speaks_is_passed_over() -> None:
    """The others go on, and are told."""
    async with open_team({"Anna": [], "Bob": [], "Carl": []}) as team:
        group, model = await team.group("Anna", "Bob", "Carl"), slow(team, "Bob")
        turn = await team.send(group.id, "Hello")
        await model.asked.wait()
        await team.store.write(lambda tx: tx.agents.delete(team.agents["Bob"]))
        model.may_answer.set()
        async with asyncio.timeout(20):
            ended = await team.ended(turn)

        assert ended.stop_reason == "end_turn"
        assert (await team.transcript(group))[1:] == ["Anna: OK.", "Bob: ✗ it was deleted while it spoke", "Carl: OK."]
        assert "[Bob] (could not speak: it was deleted while it spoke)" in team.input_of("Carl")
        assert (await team.store.read(lambda tx: tx.of(Groups).get(group.id))).agent_ids == (
            team.agents["Anna"],
            team.agents["Carl"],
        )


async def test_an_agent_that_is_deleted_before_it_speaks_is_passed_over() -> None:
    """The turn goes by the members that it began with."""
    async with open_team({"Anna": [], "Bob": []}) as team:
        group, model = await team.group("Anna", "Bob"), slow(team, "Anna")
        turn = await team.send(group.id, "Hello")
        await model.asked.wait()
        await team.store.write(lambda tx: tx.agents.delete(team.agents["Bob"]))
        model.may_answer.set()

        assert await team.stream(turn) == ["Anna", "Bob ✗", "end_turn"]


@pytest.mark.parametrize("manager", [None, "Max"])
async def test_the_group_of_a_turn_may_be_deleted(manager: str | None) -> None:
    """Its reader is told; the run that goes on is cancelled, and nothing is left to drive."""
    async with open_team({"Anna": [], "Max": []}, settings=Settings(lease_s=0.3)) as team:
        kind = "round_robin" if manager is None else "supervisor"
        group, model = await team.group("Anna", kind=kind, manager=manager), slow(team, "Anna")
        turn = await team.send(group.id, "Hello")
        await model.asked.wait()
        if manager is None:
            await team.store.write(lambda tx: tx.of(Groups).delete(group.id))
        else:
            await team.store.write(lambda tx: tx.agents.delete(team.agents["Max"]))
        async with asyncio.timeout(20):
            with pytest.raises(NotFound):
                await team.ended(turn)
            (run,) = await team.perdure.runs.page_of_runs(RunFilter(), Page(99, ascending=True))
            assert [sent async for sent in team.perdure.runs.follow_run(run)]

        assert (await team.perdure.runs.run(run.id)).status == "cancelled"


async def test_an_agent_that_takes_too_long_is_not_waited_for() -> None:
    """Of a supervisor group: the manager is told, and the run is cancelled."""
    settings = Settings(agent_reply_s=0.2)
    async with open_team({"Anna": [], "Bob": [], "Max": [says("M1")]}, settings=settings) as team:
        group = await team.group("Anna", "Bob", kind="supervisor", manager="Max")
        slow(team, "Anna")
        turn = await team.send(group.id, "Hello")

        assert await team.stream(turn) == ["Anna", "Anna ✗", "Bob", "Max", "end_turn"]
        assert (await team.transcript(group))[1] == "Anna: ✗ it did not answer within 0.2 s"
        assert "[Anna] (could not speak: it did not answer within 0.2 s)\n\n[Bob] OK." in team.input_of("Max")


async def test_agents_of_a_supervisor_speak_at_once() -> None:
    """All are asked before one has answered, and their speeches are sent one after the other."""
    async with open_team({"Anna": [], "Bob": [], "Carl": [], "Max": []}) as team:
        group = await team.group("Anna", "Bob", "Carl", kind="supervisor", manager="Max")
        models = [slow(team, name) for name in ("Anna", "Bob", "Carl")]
        turn = await team.send(group.id, "Hello")
        for model in models:
            await model.asked.wait()
        for model in reversed(models):
            model.may_answer.set()
            await asyncio.sleep(0.01)

        assert await team.stream(turn) == ["Anna", "Bob", "Carl", "Max", "end_turn"]
        assert [entry[:4] for entry in await team.transcript(group)] == ["User", "Anna", "Bob:", "Carl", "Max:"]


async def test_a_reader_gets_every_preview_of_every_speaker() -> None:
    """Also of those that spoke while another one was being told of, and a slow reader does."""
    lines = {name: [says("one two three")] for name in ("Anna", "Bob", "Max")}
    async with open_team(lines) as team:
        group = await team.group("Anna", "Bob", kind="supervisor", manager="Max")
        turn, texts = await team.send(group.id, "Hello"), dict[str, str]()
        async for event in team.turns.follow(turn):
            await asyncio.sleep(0.002)
            if isinstance(event, SpeakerEvent) and isinstance(event.event, Delta):
                texts[event.speaker.name] = texts.get(event.speaker.name, "") + event.event.text

        assert texts == dict.fromkeys(("Anna", "Bob", "Max"), "one two three")


async def test_a_participant_that_waits_for_approval_speaks_again_after_it() -> None:
    """Until then its place is passed over in later turns."""

    def order() -> str:
        """Order something."""
        return "ordered"

    lines = {"Anna": [calls("order"), says("It is ordered."), says("A2")], "Bob": []}
    async with open_team(lines, tools=[order]) as team:
        anna = await team.perdure.agent(team.agents["Anna"])
        await anna.tools.attach("order")
        await anna.require_approval("order")
        group = await team.group("Anna", "Bob")
        assert (await team.say(group)).stop_reason == "requires_approval"
        assert (await team.say(group, "two")).stop_reason == "requires_approval"
        await anna.approve(conversation=await conversation_of(team, group.id))
        assert (await team.say(group, "three")).stop_reason == "end_turn"

        entries = await team.transcript(group)
        assert entries[1] == "Anna: ✗ a call of its tools waits for approval"
        assert entries[4] == "Anna: ✗ a call of an earlier turn still waits for approval"


async def test_usage_of_a_turn_is_that_of_its_runs() -> None:
    """With the steps; the cost of models without a price is unknown."""
    async with open_team({"Anna": [], "Bob": [], "Max": [says("Bob"), says("DONE!")]}) as team:
        group = await team.group("Anna", "Bob", kind="dynamic", manager="Max")
        turn = await team.say(group)

        assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.step_count) == (30, 6, 3)
        assert turn.cost_usd is None


async def test_a_turn_ends_when_it_has_cost_enough() -> None:
    """Where prices are known."""
    async with open_team({"Anna": [], "Bob": []}) as team:
        team.turns._ports = replace(team.turns._ports, price_of=lambda model, usage: 0.25)
        group = await team.group("Anna", "Bob", max_turns=9, max_cost_usd=0.6)
        turn = await team.say(group)

        assert (turn.stop_reason, turn.cost_usd) == ("max_cost", 0.75)


async def test_a_message_passed_on_too_often_ends_at_once() -> None:
    """Nobody is asked."""
    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")
        turn = await team.send(group.id, "Hello", hops=11)

        assert await team.stream(turn) == ["max_depth"]


async def test_a_change_holds_from_the_next_turn_on() -> None:
    """An agent that leaves speaks no more; one that joins is shown what was said before; one that is back goes on."""
    async with open_team({"Anna": [], "Bob": [], "Carl": []}) as team:
        group, ports = await team.group("Anna", "Bob"), team.perdure.app.ports
        await team.say(group, "one")
        ids = [team.agents["Carl"], team.agents["Bob"]]
        same = team.perdure.groups.by_id(group.id)
        before = await same.conversation_of(team.agents["Anna"])
        await team.store.write(
            lambda tx: update_group(tx, group.id, {"agent_ids": ids}, ids=ports.ids, at=ports.clock.now())
        )
        await team.say(group, "two")
        await same.update(agent_ids=[*ids, team.agents["Anna"]])

        assert (await team.transcript(group))[3:] == ["User: two", "Carl: OK.", "Bob: OK."]
        assert team.input_of("Carl").endswith("[User] one\n\n[Anna] OK.\n\n[Bob] OK.\n\n[User] two")
        assert before == await same.conversation_of(team.agents["Anna"])


async def test_a_reset_empties_the_conversations_of_the_group_only() -> None:
    """And the transcript; what an agent was told elsewhere stays."""
    async with open_team({"Anna": [], "Bob": []}) as team:
        group = await team.group("Anna", "Bob")
        anna = await team.perdure.agent(team.agents["Anna"])
        await anna.send("just you")
        await team.say(group, "all of you")
        await reset_group(group.id, team.perdure.app.ports, author=ADA)
        assert await team.transcript(group) == []
        await team.say(group, "again")

        assert team.input_of("Anna").endswith("[User] again")
        assert [one.text for one in team.models["Anna"].requests[-1].messages if one.role == "user"] == [
            team.input_of("Anna")
        ]
        view = await team.store.read(lambda tx: tx.messages.list_by_seqs(anna.id, range(2)))
        assert [one.text for one in view] == ["just you", "OK."]


async def test_a_deleted_conversation_is_replaced() -> None:
    """Somebody deletes the conversation in which an agent speaks: it gets another one with the next turn."""
    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")
        await team.say(group, "one")
        await team.perdure.conversations.delete_conversation(await conversation_of(team, group.id))

        assert (await team.say(group, "two")).stop_reason == "end_turn"
        assert team.input_of("Anna").endswith("[User] two")


async def test_a_conversation_that_is_deleted_before_its_agent_speaks_is_passed_over() -> None:
    """The others go on, and are told why in words, without numbers of the store."""
    async with open_team({"Anna": [], "Bob": []}) as team:
        group = await team.group("Bob", "Anna")
        model = slow(team, "Bob")
        turn = await team.send(group.id, "hi")
        await model.asked.wait()
        await team.perdure.conversations.delete_conversation(
            await team.perdure.groups.by_id(group.id).conversation_of(team.agents["Anna"])
        )
        model.may_answer.set()

        assert (await team.ended(turn)).stop_reason == "end_turn"
        assert (await team.transcript(group))[-1] == "Anna: ✗ its conversation for this group was deleted"


async def test_a_turn_that_its_process_left_goes_on() -> None:
    """Its lease has run out, or its process is dead; what was said is not said again."""
    async with open_team({"Anna": [], "Bob": []}) as team:
        group = await team.group("Anna", "Bob")
        await team.say(group, "one")
        await leave(team, group.id, "host/1/2/3/gone")
        team.turns._is_dead = lambda owner: owner.endswith("gone")
        await team.turns.recover()
        turn = await team.store.read(lambda tx: tx.of(GroupTurns).get(group.id, 1))

        assert (await team.ended(turn)).stop_reason == "end_turn"
        assert (await team.ended(turn)).lease_number == 2
        assert (await team.transcript(group))[3:] == ["User: left", "Anna: OK.", "Bob: OK."]


async def test_a_turn_that_another_process_gives_back_is_taken_up_when_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a process that closes tells others in the transaction that releases its turns wakes them; they don't look
    by themselves here."""
    monkeypatch.setattr("perdure.features.groups.runner.RECOVERY_S", 3_600.0)
    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")
        await team.say(group, "one")
        while len(team.turns.tasks) > 1:  # noqa: ASYNC110 - only the worker is left, which has looked
            await asyncio.sleep(0)
        turn = await leave(team, group.id, "host/1/2/3/closing")
        topics = list[str]()

        def give_back(tx: Tx) -> int:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(type(tx.of(GroupTurns)._db), "signal", lambda _, topic: topics.append(topic))
                return tx.of(GroupTurns).release("host/1/2/3/closing")

        assert await team.store.write(give_back) == 1
        team.perdure.app.ports.signals._pass_on(topics)

        assert (await team.ended(turn)).lease_number == 2


async def test_a_turn_is_left_to_a_process_that_reaches_the_models() -> None:
    """Here the agents would only fail. One that was cancelled is ended by any process."""
    async with open_team({"Anna": [], "Bob": []}) as team:
        group = await team.group("Anna", "Bob")
        turn = await leave(team, group.id, "host/1/2/3/gone")
        team.turns._is_dead = lambda owner: True
        model = team.perdure.app.models._models.pop("test/Bob")
        await team.turns.recover()
        assert len(team.turns.tasks) == 1
        await team.turns.cancel(group.id, turn.seq)
        await team.turns.recover()
        assert (await team.ended(turn)).stop_reason == "cancelled"
        await leave(team, group.id, "host/1/2/3/gone")
        team.perdure.app.models._models["test/Bob"] = model
        await team.turns.recover()

        assert await team.stream(await team.store.read(lambda tx: tx.of(GroupTurns).get(group.id, 1))) == [
            *("Anna", "Bob", "end_turn")
        ]


async def test_a_turn_of_another_process_is_left_to_it() -> None:
    """As long as its lease holds; a reader here waits for it."""
    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")
        turn = await leave(team, group.id, "host/1/2/3/alive")
        team.turns._is_dead = lambda owner: False
        await team.turns.recover()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await team.ended(turn)

        assert team.models["Anna"].requests == []


async def leave(team: Team, group_id: GroupId, owner: str) -> GroupTurn:
    """A turn that another process has begun."""
    ports = team.perdure.app.ports
    inputs = replace(ports.inputs(), owner=owner)
    draft = Draft(id=MessageId(ports.ids.new("message")), role="user", parts=(Text("left"),))
    request = GroupRequest(group_id=group_id, drafts=(draft,))
    turn = await team.store.write(accept_turn, request, inputs)
    assert await team.store.write(claim_turn, turn, inputs) is not None
    return turn


async def test_a_defect_ends_the_turn_and_not_the_group() -> None:
    """The next message is answered."""
    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")

        def broken(model: str, usage: object) -> float:
            raise ZeroDivisionError("no price")

        ports = team.turns._ports
        team.turns._ports = replace(ports, price_of=broken)
        turn = await team.say(group)
        team.turns._ports = ports

        assert turn.stop_reason == "error" and turn.failure is not None
        assert turn.failure.message == "ZeroDivisionError: no price"
        assert (await team.say(group, "again")).stop_reason == "end_turn"


async def test_a_turn_that_can_not_be_claimed_is_not_tried_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect there must not keep the process busy; once it is gone, the turn goes on."""
    tries = 0

    def broken(*arguments: object, **options: object) -> None:
        nonlocal tries
        tries += 1
        raise ZeroDivisionError

    async with open_team({"Anna": []}) as team:
        group = await team.group("Anna")
        with monkeypatch.context() as patch:
            patch.setattr("perdure.features.groups.runner.claim_turn", broken)
            turn = await team.send(group.id, "hi")
            await asyncio.sleep(0.05)

        assert 1 <= tries < 5
        assert (await team.ended(turn)).stop_reason == "end_turn"


async def test_a_reader_may_come_late_or_leave_early() -> None:
    """The turn goes on without it, and is told again from its beginning."""
    async with open_team({"Anna": [fails()], "Bob": []}) as team:
        group = await team.group("Anna", "Bob")
        turn = await team.send(group.id, "Hello")
        events = team.turns.follow(turn)
        assert isinstance(await anext(events), SpeakerStarted)
        await events.aclose()
        ended = await team.ended(turn)
        again = [event async for event in team.turns.follow(turn)]

        assert again[-1] == GroupTurnEnded(ended)
        assert await team.stream(turn) == ["Anna", "Anna ✗", "Bob", "end_turn"]


async def test_an_erased_text_leaves_the_transcript() -> None:
    """What the user said, and what the agent did."""
    async with open_team({"Anna": [says("I saw the walrus too.")]}) as team:
        group = await team.group("Anna")
        await team.say(group, "Look, a walrus")
        anna = await team.perdure.agent(team.agents["Anna"])
        await anna.forget("walrus", erase=True)

        assert await team.transcript(group) == ["User: Look, a [redacted]", "Anna: I saw the [redacted] too."]
