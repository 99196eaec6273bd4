"""Functions as people write them: every docstring style, and every kind of annotation that a schema can say."""

from __future__ import annotations

import datetime as dt
import enum
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, auto
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, NamedTuple, NotRequired, Optional, Required, Set, Tuple, Union  # noqa: UP035
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

DEFAULT_DAYS = 3
Size = Literal["s", "m", "l"]
Ids = List[int]  # noqa: UP006


class Colour(Enum):
    """What it looks like."""

    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(str, enum.Enum):  # noqa: UP042
    ON = "on"
    OFF = "off"


class Step(Enum):
    FIRST = auto()
    SECOND = auto()


class Item(BaseModel):
    """Something to buy.

    In stock or not.
    """

    sku: str = Field(..., description="Its number.", pattern="^[A-Z]+$", min_length=2, max_length=9)
    price: float = Field(gt=0, le=1e6)
    count: int = 1
    tags: list[str] = Field(default_factory=list, max_length=3)
    size: Optional[Size] = None  # noqa: UP045
    _cache: int = 0
    limit: t.ClassVar[int] = 5


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[Item]
    at: datetime
    colour: Colour = Colour.RED
    parent: Order | None = None
    note: Annotated[str, Field(description="Free text.")] = ""
    number: int = Field(alias="orderNumber")
    rating: int | None = Field(None, ge=1, le=5)


class Rush(Order):
    """An order that hurries."""

    hours: int = Field(default=4, multiple_of=2)
    count: dict[str, int] = {}


@dataclass
class Point:
    """Where."""

    x: float
    y: float = 0.0
    names: list[str] = field(default_factory=list)


class Place(TypedDict, total=False):
    city: Required[str]
    zip: int


class Trip(TypedDict):
    """From here to there."""

    start: Place
    end: NotRequired[str]


class Pair(NamedTuple):
    left: int
    right: str = "r"


def bare() -> str:
    """Do it."""
    return ""


def google(city: str, days: int = 3, *, exact: bool = False) -> str:
    """Tell the weather.

    Works for any place.
    Even far ones.

    Args:
        city (str): The name: of the city,
            or of the town.
        days (int, optional): How many days ahead. Defaults to 3.
        exact: To the minute.

    Returns:
        str: a text

    Raises:
        ValueError: never

    Examples:
        google("Rome")
    """
    return city


def google_parameters(city: str, country: str = "IT") -> str:
    """Tell the weather.

    Parameters:
        city: The city.
        country: Two letters.
    """
    return city


def numpy_style(rows: List[float], width: int = 3, height: int = 3) -> float:  # noqa: UP006
    """
    Smooth the rows.

    By a moving mean.

    Parameters
    ----------
    rows : list of float
        What to smooth.
    width, height : int, optional
        Of the window.

    Returns
    -------
    float
        The mean.
    """
    return 0.0


def sphinx(path: str, mode: Mode, lines: int = DEFAULT_DAYS) -> str:
    """Read a file.

    :param path: Where it is,
        from the root.
    :type path: str
    :param Mode mode: How.
    :param lines: How many.
    :returns: its text
    :raises OSError: it is gone
    """
    return path


def epydoc(name: str) -> str:
    """Greet.

    @param name: Whom.
    @return: a greeting
    """
    return name


def plain(city: str, note: str = "") -> str:
    """Look a city up: quick and simple. See http://example.org:80/x.

    Note: only capitals
    """
    return city


def one_line(text: str) -> int:
    "Count the words"
    return 0


def lists(a: list, b: list[int], c: Sequence[str], d: set[int], e: tuple[int, ...], f: Set[str], g: List) -> None:  # type: ignore[type-arg]  # noqa: UP006
    """Take lists."""


def tuples(a: tuple[int, str], b: Tuple[float], c: tuple) -> None:  # type: ignore[type-arg]  # noqa: UP006
    """Take tuples."""


def mappings(a: dict, b: dict[str, int], c: Dict[str, Any], d: Mapping[str, list[str]]) -> None:  # type: ignore[type-arg]  # noqa: UP006
    """Take mappings."""


def optional(a: Optional[int], b: Optional[str] = None, c: int | None = 5, d: Optional[List[str]] = None) -> None:  # noqa: UP006, UP045
    """Take nothing."""


def unions(a: Union[int, str], b: int | float | None, c: Union[List[int], Dict[str, int]]) -> None:  # noqa: UP006, UP007
    """Take one of them."""


def literals(a: Literal["x"], b: Literal["x", "y"], c: Literal[1, 2], d: Literal["a", 1, None], e: Size = "m") -> None:
    """Take these."""


def enums(a: Colour, b: Level, c: Mode = Mode.ON, d: Step = Step.FIRST, e: list[Colour] | None = None) -> None:
    """Take members."""


def times(a: datetime, b: date, c: dt.time, d: timedelta, e: dt.datetime | None = None) -> None:
    """Take times."""


def others(a: UUID, b: Decimal, c: Path, d: bytes, e: Any, f: object = None) -> None:
    """Take the rest."""


def constrained(
    a: Annotated[int, Field(ge=1, le=9, description="A digit.")],
    b: Annotated[str, "The name."] = "x",
    c: t.Annotated[list[int], Field(min_length=1)] = [1],  # noqa: B006
    d: int = Field(4, ge=2, description="How many."),
    e: Annotated[Optional[str], Field(max_length=3)] = None,  # noqa: UP045
) -> None:
    """Take a few."""


def defaults(
    a: float = -1.5,
    b: list[int] = [1, 2],  # noqa: B006
    c: tuple[int, ...] = (1, 2),
    d: dict[str, int] = {"a": 1},  # noqa: B006
    e: str = None,  # type: ignore[assignment]  # noqa: RUF013
    f: Ids = [],  # noqa: B006
    g: str = "a\n'b'",
) -> None:
    """Take nothing at all."""


def model(order: Order, item: Item) -> str:
    """Order something.

    Args:
        order: What.
        item: One more.
    """
    return ""


def nested(rush: Rush, more: list[Item] | None = None, named: dict[str, Item] = {}) -> str:  # noqa: B006
    """Order much."""
    return ""


def classes(point: Point, trip: Trip, pair: Pair) -> str:
    """Go there.

    Args:
        point: To where.
    """
    return ""


async def asynchronous(seconds: float = 1) -> None:
    """Wait."""


def texts(a: "int", b: "Optional[Order]" = None, c: List["Colour"] = []) -> None:  # noqa: B006, UP006, UP037, UP045
    """Take what is written as text."""


EXAMPLES = [
    bare,
    google,
    google_parameters,
    numpy_style,
    sphinx,
    epydoc,
    plain,
    one_line,
    lists,
    tuples,
    mappings,
    optional,
    unions,
    literals,
    enums,
    times,
    others,
    constrained,
    defaults,
    model,
    nested,
    classes,
    asynchronous,
    texts,
]
