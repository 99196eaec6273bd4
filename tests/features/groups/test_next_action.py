"""What a group does next, over logs of any kind: it ends, nobody speaks twice, and what is done stays."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import AgentId, GroupId
from perdure.core.messages import Text
from perdure.core.runs import Usage
from perdure.features.groups.log import CHOICES_MAX, DYNAMIC_TURNS, FinishAction, GroupLog, SpeakAction, next_action
from perdure.features.groups.values import GroupMember, GroupMessage, GroupMessageKind, GroupPlan, GroupTurn, Speaker
from perdure.testing.clock import START

GROUP = GroupId("group-1")
KINDS: list[GroupMessageKind] = ["speech", "silence", "failure", "approval"]


def member(name: str) -> GroupMember:
    return GroupMember(agent_id=AgentId(f"agent-{name}"), name=name, conversation_seq=1)


@st.composite
def plans(draw: st.DrawFn) -> GroupPlan:
    kind = draw(st.sampled_from(["round_robin", "supervisor", "dynamic"]))
    return GroupPlan(
        kind=kind,  # type: ignore[arg-type]
        participants=tuple(member(str(number)) for number in range(draw(st.integers(1, 4)))),
        manager=None if kind == "round_robin" else member("boss"),
        termination_token="DONE!",
        max_turns=draw(st.none() | st.integers(1, 12)),
        max_tokens=draw(st.none() | st.integers(1, 60)),
    )


def entry(log: GroupLog, speaker: Speaker, action: SpeakAction, data: st.DataObject) -> GroupMessage:
    """What may become of a speech."""
    draw = data.draw
    plan = log.turn.plan
    assert plan is not None
    base = GroupMessage(
        group_id=GROUP,
        seq=log.last_seq + 1,
        turn_seq=0,
        place=speaker.place,
        kind=draw(st.sampled_from(KINDS)),
        sender_id=speaker.agent_id,
        sender_name=speaker.name,
        seen_seq=action.seen_seq,
        parts=(Text("why"),),
        created_at=START,
    )
    if speaker.task == "choose":
        chosen = draw(st.none() | st.sampled_from([one.agent_id for one in plan.participants]))
        kind: GroupMessageKind = draw(st.sampled_from(["choice", "choice", "choice", "failure"]))
        ends = chosen is None and draw(st.booleans()) and draw(st.booleans())
        return replace(base, kind=kind, chosen_id=chosen if kind == "choice" else None, ends_turn=ends)
    ends = plan.kind == "dynamic" and base.kind == "speech" and draw(st.integers(0, 9)) == 0
    return replace(base, ends_turn=ends)


def begun(plan: GroupPlan) -> GroupLog:
    hello = GroupMessage(group_id=GROUP, turn_seq=0, kind="user", parts=(Text("Hello"),), created_at=START)
    return GroupLog(GroupTurn(group_id=GROUP, plan=plan, created_at=START), [hello])


def most_places(plan: GroupPlan) -> int:
    """How many runs a turn may have."""
    turns = plan.max_turns or (DYNAMIC_TURNS if plan.kind == "dynamic" else len(plan.participants))
    return turns * (CHOICES_MAX + 1) + CHOICES_MAX if plan.kind == "dynamic" else turns + 1


@given(st.data())
def test_a_turn_ends_whatever_its_agents_do(data: st.DataObject) -> None:
    """Within its limits, each place is taken once, in order, and what has begun at once is not begun again otherwise
    when a part of it is done."""
    plan = data.draw(plans())
    log, wanted = begun(plan), list[Speaker]()
    for _ in range(most_places(plan) + 1):
        action = next_action(log)
        assert next_action(log) == action
        if isinstance(action, FinishAction):
            break
        if wanted:
            assert list(action.speakers) == wanted
        speaker, *wanted = action.speakers
        assert speaker.place == len(log.places)
        assert action.seen_seq <= log.last_seq
        used = log.turn.usage + Usage(input_tokens=data.draw(st.integers(0, 20)))
        added = entry(log, speaker, action, data)
        log = GroupLog(replace(log.turn, usage=used), [*log.entries, added])
    else:
        raise AssertionError("the turn does not end")

    assert len(log.places) <= most_places(plan)
    assert action.reason != "cancelled"
    assert next_action(replace(log, turn=replace(log.turn, cancel_requested=True))) == FinishAction("cancelled")


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 99))
def test_a_budget_counts_what_was_read_and_what_was_said(read: int, said: int, most: int) -> None:
    """Input and output tokens alike: the next one speaks only while both together are below it."""
    members = (member("a"), member("b"))
    log = begun(GroupPlan(kind="round_robin", participants=members, max_tokens=most))
    speech = GroupMessage(
        group_id=GROUP, turn_seq=0, seq=1, place=0, kind="speech", parts=(Text("Hi"),), created_at=START
    )
    turn = replace(log.turn, usage=Usage(input_tokens=read, output_tokens=said))
    action = next_action(GroupLog(turn, [*log.entries, speech]))

    assert (action == FinishAction("max_tokens")) == (read + said >= most)
    assert isinstance(action, SpeakAction) == (read + said < most)


@given(plans(), st.integers(11, 99))
def test_a_message_that_was_passed_on_too_often_reaches_nobody(plan: GroupPlan, hops: int) -> None:
    """A cycle of agents and groups ends by this limit."""
    log = begun(plan)

    assert next_action(replace(log, turn=replace(log.turn, hops=hops))) == FinishAction("max_depth")


@given(plans())
def test_a_group_whose_agents_are_gone_ends_with_an_error(plan: GroupPlan) -> None:
    """There is nobody to wait for."""
    log = begun(replace(plan, participants=()))

    assert next_action(log) == FinishAction("error", "the group has no agents left")
