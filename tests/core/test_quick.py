"""A quick class is the frozen dataclass that it was, made faster."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from perdure.core.quick import changed, maker, quick


@quick
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    name: str = field(default="p", kw_only=True)


@quick
@dataclass(frozen=True, slots=True)
class Listed:
    rows: list[int] = field(default_factory=list)


def test_it_is_made_and_compared_as_before() -> None:
    point = Point(1)
    assert type(point) is Point
    assert (point.x, point.y, point.name) == (1, 2, "p")
    assert repr(point) == "Point(x=1, y=2, name='p')"
    assert point == Point(1, 2, name="p") != Point(1, 3)
    assert hash(point) == hash(Point(1))
    assert replace(point, y=5) == changed(point, y=5) == Point(1, 5)
    assert changed(Listed([1]), rows=[2]) == Listed([2])
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 2, *, name: 'str' = 'p') -> None"
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]


def test_a_maker_makes_what_the_class_makes() -> None:
    make_point, make_listed = maker(Point), maker(Listed)
    made = make_point(1, name="q")

    assert type(made) is Point
    assert made == Point(1, name="q")
    assert make_listed() == Listed()
    assert make_listed().rows is not make_listed().rows
    with pytest.raises(FrozenInstanceError):
        made.x = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        make_point()  # type: ignore[call-arg]


def test_a_change_leaves_the_value_as_it_was() -> None:
    listed = Listed([1])
    copied = changed(listed)

    assert copied == listed
    assert copied is not listed
    assert copied.rows is listed.rows
    with pytest.raises((AttributeError, TypeError)):
        changed(listed, column=1)  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        copied.rows = []  # type: ignore[misc]


def test_it_is_still_frozen() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        point.other = 2  # type: ignore[attr-defined]


def test_each_gets_a_default_of_its_own() -> None:
    one, other = Listed(), Listed()
    assert one.rows == other.rows == []
    assert one.rows is not other.rows
    assert Listed([1]).rows == [1]


def test_copies_are_equal() -> None:
    point = Point(1, name="q")
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point


def test_what_it_can_not_make_is_refused() -> None:
    with pytest.raises(TypeError, match="only what is given"):

        @quick
        @dataclass(frozen=True, slots=True)
        class Numbered:
            number: int = field(default=1, init=False)

    with pytest.raises(TypeError, match="slots"):

        @quick
        @dataclass(frozen=True)
        class Loose:
            x: int

    with pytest.raises(TypeError, match="derived"):

        class Derived(Point):
            pass
