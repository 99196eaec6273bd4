"""Shapes of answers, each described once: how it is made of a value of the library, and what the OpenAPI document says.

A type of an attribute is looked up when the document is first asked for: no start and no answer waits for that.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NewType,
    NotRequired,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from perdure.core.ids import PREFIXES
from perdure.server.wire.base import ACTOR_ID, WIRE_FIELDS, stamp
from perdure.server.wire.fields import IdFormat

Object = dict[str, Any]

_PLAIN = frozenset({str, int, float, bool, type(None)})


class WireShape(dict[str, Any]):
    """An object of an answer: `make` builds it of a value, and the class is its type in the document, which leaves the
    `Wire` out that begins the name of a shape where a class of the library has the other.

        class EventShape(WireShape, of=FactEvent, fields="at kind fact.text fact_id ends", fact_id="fact.id"):
            ends: bool = computed(lambda event: event.kind == "end")

        EventShape.make(event)  # {"at": ..., "kind": "end", "text": event.fact.text, "fact_id": ..., "ends": True}

    `fields` names the fields in their order. Each has the value and the type of the attribute of its name; with dots it
    is a path of attributes, whose last is the name. A keyword gives a field of another name its path. Behind a null all
    are null. A field of the body has a type of its own; its value is its default, what is `computed`, or that of its
    path; where the type is a shape, or a list of shapes, they are made of that.
    """

    _of: ClassVar[Any] = None
    _order: ClassVar[Sequence[str]] = ()
    _paths: ClassVar[Mapping[str, str]] = {}
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _unlisted: ClassVar[Mapping[str, Any]] = {}
    _optional: ClassVar[frozenset[str]] = frozenset()
    _time: ClassVar[Callable[[Any], str]] = stamp

    def __init_subclass__(
        cls, *, of: Any = None, fields: str = "", unlisted: Mapping[str, Any] = {}, optional: str = "", **others: str
    ) -> None:
        """Declare the fields. `unlisted`: fields that the document omits: constants or, after all others, `computed`
        ones. `optional`: names of fields that are omitted where they are null. A subclass adds to the fields of its
        base, and moves those that it names again."""
        body = inspect.get_annotations(cls)
        own = {**cls._paths, **dict(zip(body, body, strict=True)), **others}
        named = {path.rpartition(".")[2]: path for path in fields.split()}
        cls._of = of or cls._of
        cls._order = (*(name for name in cls._order if name not in named), *named)
        cls._paths = own | {name: path for name, path in named.items() if name not in unlisted and path not in own}
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in body if name in cls.__dict__}}
        cls._unlisted = {**cls._unlisted, **unlisted}
        cls._optional = cls._optional.union(optional.split())

    @classmethod
    def make(cls, value: object, **values: Any) -> Self:
        """The shape of a value. `values`: values of fields, also of some that the document does not list."""
        made = {
            name: values.pop(name) if name in values else constant if read is None else read(value)
            for name, (constant, read) in cls._plan().items()
        } | values
        if not cls._optional:
            return cls(made)
        return cls({name: one for name, one in made.items() if one is not None or name not in cls._optional})

    @classmethod
    @functools.cache
    def _hints(cls) -> dict[str, Any]:
        """The fields of the body, with their types."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: hint for name, hint in hints.items() if name in cls._paths}

    @classmethod
    @functools.cache
    def _plan(cls) -> Mapping[str, tuple[Any, Callable[[Any], Any] | None]]:
        """Name of each field, in order -> (its constant value, or the function that reads it)."""
        hints = cls._hints()
        values = {name: one for name, one in cls._unlisted.items() if not isinstance(one, _Computed)}
        for name, path in cls._paths.items():
            values[name] = cls._defaults.get(name, _Computed(_reader(path, hints.get(name), cls._time)))
        values |= {name: one for name, one in cls._unlisted.items() if name not in values}
        plan = {name: (None, one.of) if isinstance(one, _Computed) else (one, None) for name, one in values.items()}
        return {name: plan.pop(name) for name in cls._order if name in plan} | plan

    @classmethod
    @functools.cache
    def _described(cls) -> Any:
        """The shape as a type that the document's generator knows."""
        hints = cls._hints()
        hints = hints | {name: NotRequired[hints[name]] for name in cls._optional}
        listed = {name: hints.get(name) or _type_at(cls._of, path) for name, path in cls._paths.items()}
        described = TypedDict(cls.__name__.removeprefix("Wire"), listed)  # type: ignore[misc]  # its fields are known at run time only
        described.__doc__ = cls.__doc__
        return described

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(cls._described())


@dataclass(frozen=True, slots=True)
class _Computed:
    """A field that is computed from the object of a shape."""

    of: Callable[[Any], Any]  # of the value that a shape is made of


def computed(of: Callable[[Any], Any]) -> Any:
    """Declare a field of a shape whose value is `of(value)`; `value`: the object the shape is built from."""
    return _Computed(of)


def wire_field(name: str, default: Any = None) -> Any:
    """A field that only the wire has, which is stored in the metadata."""
    return _Computed(lambda value: value.metadata.get(WIRE_FIELDS, {}).get(name, default))


def read(*paths: str, **others: str) -> dict[str, Any]:
    """Return fields for a shape's `unlisted`, each read from a path of attributes such as `run.id`. A path of `paths`
    gives its last name to the field; `others`: field -> path."""
    named = {path.rpartition(".")[2]: path for path in paths} | others
    return {name: _Computed(_reader(path, None, stamp)) for name, path in named.items()}


class StampedShape(WireShape, fields="created_by_id last_updated_by_id created_at updated_at"):
    """What most answers begin with: who created and changed a thing, and when."""

    created_by_id: str | None = ACTOR_ID
    last_updated_by_id: str | None = ACTOR_ID


def _reader(path: str, hint: Any, time: Callable[[Any], str]) -> Callable[[Any], Any]:
    """Return a function that reads the attribute at a path of a value as JSON; None if something on the path is None.
    `hint`: the field's type; for a shape or a list of shapes the attribute is turned into it. `time` turns a datetime
    into JSON."""
    names = path.split(".")
    kinds = (hint, *get_args(hint))
    shape = next((kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, WireShape)), None)

    def read(value: Any) -> Any:
        """Return the attribute at the path as JSON has it."""
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        if type(value) in _PLAIN:
            return value
        if shape is None:
            return time(value) if isinstance(value, datetime) else list(value) if isinstance(value, tuple) else value
        return [shape.make(one) for one in value] if get_origin(hint) is list else shape.make(value)

    return read


def _type_at(owner: Any, path: str) -> Any:
    """The type of the attribute at a path, with patterns of ids; of several owners or none, one of several types."""
    if get_origin(owner) in (Union, types.UnionType):
        kinds = [arg if arg is type(None) else _type_at(arg, path) for arg in get_args(owner)]
        return Union[tuple(kinds)]  # noqa: UP007  # made at run time
    name, _, rest = path.partition(".")
    attribute = inspect.getattr_static(owner, name, None)
    is_property = isinstance(attribute, property)
    kind = get_type_hints(attribute.fget)["return"] if is_property else get_type_hints(owner)[name]
    return _type_at(kind, rest) if rest else _with_patterns(kind)


def _with_patterns(kind: Any) -> Any:
    """The type with a pattern for each id in it."""
    if isinstance(kind, NewType):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Id")).lower()
        return Annotated[kind, IdFormat(words)] if words in PREFIXES else kind
    origin, args = get_origin(kind), get_args(kind)
    if not args or origin is Literal:
        return kind
    args = tuple(map(_with_patterns, args))
    return Union[args] if origin in (Union, types.UnionType) else origin[args]  # noqa: UP007  # made at run time
