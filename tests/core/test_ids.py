"""The form of ids."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import (
    DEFAULT_ORG,
    DEFAULT_USER,
    PREFIXES,
    MessageId,
    RunId,
    StepId,
    Uuids,
    derived_id,
    id_in_run,
    is_id,
    run_of,
)
from perdure.testing import SequentialIds
from tests.support.strategies import effort


@effort(12, 1000)
@given(st.sampled_from(sorted(PREFIXES)), st.uuids(version=4))
def test_prefix_and_uuid_make_an_id(kind: str, number: uuid.UUID) -> None:
    """Of its own kind, and of no other."""
    text = f"{PREFIXES[kind]}-{number}"

    assert [other for other in PREFIXES if is_id(other, text)] == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent",
        "agent-",
        "agent-1",
        "agent-00000000-0000-4000-8000-00000000000",
        "agent-00000000-0000-4000-8000-0000000000000",
        "agent-00000000-0000-1000-8000-000000000000",
        "agent-00000000-0000-4000-7000-000000000000",
        "agent-0000000A-0000-4000-8000-000000000000",
        "agent-00000000-0000-4000-8000-000000000000\n",
        " agent-00000000-0000-4000-8000-000000000000",
        "block-00000000-0000-4000-8000-000000000000",
    ],
)
def test_other_texts_are_no_agent_ids(text: str) -> None:
    """Too short, too long, another version, capitals, white space, another kind."""
    assert not is_id("agent", text)


def test_the_default_organisation_and_user_have_ids() -> None:
    """They are ids like any other."""
    assert is_id("org", DEFAULT_ORG)
    assert is_id("user", DEFAULT_USER)


def test_ids_of_tests_are_ids() -> None:
    """Sequential ids are valid, all different, and the same in every run."""
    ids, again, salted = SequentialIds(), SequentialIds(), SequentialIds(salt=1)
    new_ids = [ids.new(kind) for kind in PREFIXES]

    assert all(map(is_id, PREFIXES, new_ids))
    assert new_ids == [again.new(kind) for kind in PREFIXES]
    assert not set(new_ids) & {salted.new(kind) for kind in PREFIXES}


@effort(12, 1000)
@given(st.lists(st.text(), min_size=1, max_size=3), st.lists(st.text(), min_size=1, max_size=3))
def test_derived_ids_stand_for_their_facts(facts: list[str], others: list[str]) -> None:
    """The same facts have the same id, others another one, and it has the form of any id."""
    new_ids = derived_id("message", *facts)

    assert is_id("message", new_ids)
    assert derived_id("message", *facts) == new_ids
    assert (derived_id("message", *others) == new_ids) is (others == facts)


def test_facts_may_hold_any_text() -> None:
    """Also half a surrogate pair, which has no UTF-8."""
    assert derived_id("passage", "\ud83d") != derived_id("passage", "\ude00")


def test_what_a_run_makes_has_ids_that_lead_to_it() -> None:
    """As many as there is room for, all different; beyond that they are of nobody's, and all are ids."""
    ids = Uuids()
    run_id = RunId(ids.new("run"))
    inputs = [MessageId(id_in_run(run_id, "input", index, ids)) for index in range(2_100)]
    answers = [MessageId(id_in_run(run_id, "answer", index, ids)) for index in range(2_100)]
    steps = [StepId(id_in_run(run_id, "step", index, ids)) for index in range(2_100)]

    assert is_id("run", run_id)
    assert all(is_id("message", one) for one in inputs + answers)
    assert all(is_id("step", one) for one in steps)
    assert len({*inputs, *answers}) == 4_200
    assert len({*steps}) == 2_100
    assert len({one[:11] for one in (*inputs[:5], *answers[:5])}) == 10  # people tell them by how they begin
    for new_ids in (inputs, answers, steps):
        assert all(run_of(one) == run_id for one in new_ids[:2_000])
        assert not any(run_of(one) == run_id for one in new_ids[2_050:])


def test_a_run_whose_id_has_no_room_gets_other_ids() -> None:
    """As one of an older Perdure, or of somebody's own `Ids`: then nothing leads to it."""
    ids = Uuids()
    run_id = RunId(f"{ids.new('run')[:-3]}001")

    assert run_of(MessageId(id_in_run(run_id, "input", 0, ids))) != run_id
    assert run_of(StepId(id_in_run(run_id, "step", 0, ids))) != run_id
    assert run_of(RunId(f"{run_id[:-3]}002")) != run_id
