"""Columns hold any text: what a database can't store is written otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.storage.database.row_format import JSON_TUPLE, RowFormat, restore, storable
from tests.support.strategies import any_text, effort


@effort(12, 5000)
@given(any_text())
@example("\x1b\x1b")
@example("\x1bd800")
@example("\x1b\ud800")
@example("\ud800\udc00")
def test_stored_text_comes_back(text: str) -> None:
    """Whatever it holds; what is stored can be encoded and has no NUL."""
    stored = storable(text)

    stored.encode()
    assert "\x00" not in stored
    assert restore(stored) == text


@effort(12, 2000)
@given(st.lists(any_text(6), min_size=2, max_size=6, unique=True))
def test_different_texts_are_stored_differently(texts: list[str]) -> None:
    """So a stored name can be looked up."""
    assert len(set(map(storable, texts))) == len(texts)


@pytest.mark.parametrize("text", ["", "plain", "中文 🧭 é\n\t\x01\x7f"])
def test_ordinary_text_is_stored_as_it_is(text: str) -> None:
    """Only what a column can't hold is written otherwise."""
    assert storable(text) is text


@dataclass(frozen=True, slots=True)
class Basket:
    fruits: tuple[str, ...] | None


def test_what_null_stands_for_is_stored_as_null() -> None:
    """So a row holds nothing for a value that says nothing, and comes back the same."""
    fruits = JSON_TUPLE._replace(null=())
    basket = RowFormat(Basket, {fruits: "fruits"})

    assert [basket.params(Basket(some)) for some in ((), None, ("fig",))] == [
        {"fruits": None},
        {"fruits": None},
        {"fruits": '["fig"]'},
    ]
    assert [basket.read([stored]).fruits for stored in (None, '["fig"]')] == [(), ("fig",)]


@dataclass(frozen=True, slots=True)
class Crate:
    name: str
    is_full: bool
    packed_at: datetime | None
    weights: tuple[int, ...]
    labels: Mapping[str, str]


def test_fields_of_a_dataclass_are_stored_by_their_types() -> None:
    """So a new field of one is a column without a further word."""
    crates = RowFormat(Crate)
    crate = Crate("a\x00b", True, datetime(2026, 1, 2, tzinfo=UTC), (1, 2), {"from": "Porto"})

    row = crates.params(crate)

    assert crates.columns == "name, is_full, packed_at, weights, labels"
    assert list(row.values()) == ["a\x1b0000b", 1, "2026-01-02T00:00:00.000000+00:00", "[1,2]", '{"from":"Porto"}']
    assert crates.read([*row.values()]) == crate
