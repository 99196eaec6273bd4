"""Events as JSON: every kind comes back as it was."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given

from perdure.core.events import Event, MessageAdded, events_from_text, events_to_text
from perdure.core.messages import Text
from tests.contracts.events import FACTS
from tests.support.strategies import build_log, effort, events


@effort(12, 3000)
@given(events())
def test_an_event_comes_back_from_json(event: Event) -> None:
    """Exactly as it was, from its kind and its body."""
    assert events_from_text(*events_to_text([event])) == [event]


@effort(12, 3000)
@given(events())
def test_the_body_is_compact_json(event: Event) -> None:
    """As the encoder writes it, also where the braces are written by hand."""
    body = events_to_text([event])[1]

    assert body == json.dumps(json.loads(body), ensure_ascii=False, separators=(",", ":"))


def test_every_kind_is_tried() -> None:
    """The contract's examples hold each kind but the one that needs a message."""
    assert {type(event) for event in FACTS} == set(get_args(Event)) - {MessageAdded}


def test_kinds_are_told_apart_by_type() -> None:
    """No two kinds share a type, and the body does not repeat it."""
    types = [kind.__dataclass_fields__["type"].default for kind in get_args(Event)]

    assert len(set(types)) == len(types)
    assert all("type" not in json.loads(events_to_text([event])[1]) for event in FACTS)


def test_a_message_is_named_not_copied() -> None:
    """The message stands in the log once; its event names it."""
    (message,) = build_log([Text("hello")])

    assert events_to_text([MessageAdded(0, message)])[1] == '{"message_seq":0}'


def test_an_unknown_kind_is_refused() -> None:
    """An event that a newer version wrote is not passed over."""
    with pytest.raises(ValueError, match=r"'run\.exploded'"):
        events_from_text("run.exploded", "{}")
