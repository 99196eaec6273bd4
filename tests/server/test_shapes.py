"""Shapes of answers: one description makes the object, and says in the OpenAPI document what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from perdure.core.ids import ID_PATTERNS, AgentId
from perdure.server.wire.shapes import WireShape, computed

ANN = AgentId("agent-123e4567-e89b-42d3-a456-426614174000")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Moon:
    name: str
    seen_at: datetime | None = None

    @property
    def letters(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True)
class Planet:
    agent_id: AgentId
    kind: Literal["rock", "gas"]
    moons: tuple[Moon, ...] = ()
    first: Moon | None = None
    sizes: Mapping[str, int] | None = None


class MoonShape(WireShape, of=Moon, fields="name letters seen_at"):
    """A moon."""


class PlanetShape(
    WireShape,
    of=Planet,
    fields="count agent_id kind old_name first.letters",
    first_name="first.name",
    unlisted={"old_name": None},
    optional="note",
):
    """A planet."""

    count: int = computed(lambda planet: len(planet.moons))
    moons: list[MoonShape]
    note: str
    state: Literal["seen"] = "seen"


class SortedMoonShape(MoonShape, fields="seen_at name"):
    """A moon, by when it was seen."""


class SkyShape(WireShape, of=Planet, optional="moons"):
    """The moons of a planet."""

    moons: list[MoonShape]


def document(shape: Any) -> dict[str, Any]:
    return TypeAdapter(shape).json_schema(mode="serialization")


def test_an_object_has_the_attributes_in_the_order_of_their_names() -> None:
    """Those of `fields` first, then the others; times are written as the wire has them, behind a null is null."""
    planet = Planet(ANN, "gas", (Moon("Io", NOON),))
    made = PlanetShape.make(planet, note="far")
    assert list(made)[:5] == ["count", "agent_id", "kind", "old_name", "letters"]
    assert made == {
        **{"count": 1, "agent_id": ANN, "kind": "gas", "old_name": None, "letters": None, "first_name": None},
        **{"state": "seen", "note": "far"},
        "moons": [{"name": "Io", "letters": 2, "seen_at": "2026-11-20T12:00:00.000000Z"}],
    }


def test_a_subclass_moves_the_fields_that_it_names_again() -> None:
    """Those that it does not name stay before them."""
    assert list(SortedMoonShape.make(Moon("Io"))) == ["letters", "seen_at", "name"]
    assert document(SortedMoonShape)["properties"].keys() == document(MoonShape)["properties"].keys()


def test_a_value_that_is_given_counts_and_an_optional_null_is_left_out() -> None:
    """Also one of a field that the document does not list."""
    made = PlanetShape.make(Planet(ANN, "rock"), note=None, count=7, extra=1, old_name="Vulcan")
    assert (made["count"], made["extra"], made["old_name"]) == (7, 1, "Vulcan")
    assert "note" not in made


def test_the_document_has_the_types_of_the_attributes() -> None:
    """With the patterns of ids; what is behind a null can be null, and an unlisted field is not there."""
    properties = document(PlanetShape)["properties"]
    assert properties["agent_id"]["pattern"] == ID_PATTERNS["agent"]
    assert properties["kind"]["enum"] == ["rock", "gas"]
    assert [one["type"] for one in properties["first_name"]["anyOf"]] == ["string", "null"]
    assert [one["type"] for one in properties["letters"]["anyOf"]] == ["integer", "null"]
    assert properties["moons"]["items"] == {"$ref": "#/$defs/MoonShape"}
    assert "old_name" not in properties
    assert set(document(PlanetShape)["required"]) == properties.keys() - {"note"}


def test_the_document_may_be_asked_for_before_the_first_answer() -> None:
    """What an optional field is made of does not depend on which came first."""
    assert "required" not in document(SkyShape)
    made = SkyShape.make(Planet(ANN, "gas", (Moon("Io"),)))
    assert made == {"moons": [{"name": "Io", "letters": 2, "seen_at": None}]}


def test_a_path_that_is_not_there_fails_where_the_document_is_built() -> None:
    """So no operation can promise what its answer has not."""

    class Wrong(WireShape, of=Moon, fields="mass"):
        pass

    with pytest.raises(KeyError, match="mass"):
        document(Wrong)


moons = st.builds(Moon, st.text(max_size=5), st.none() | st.datetimes(timezones=st.just(UTC)))
planets = st.builds(
    Planet, st.just(ANN), st.sampled_from(("rock", "gas")), st.lists(moons).map(tuple), st.none() | moons
)


@given(planets)
def test_every_object_is_what_the_document_says(planet: Planet) -> None:
    """Whatever is null or empty in the value."""
    jsonschema_rs.validator_for(document(PlanetShape)).validate(PlanetShape.make(planet, note=None))
