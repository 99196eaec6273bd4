"""Annotations of source text as Python types: built from what is named, never run. pydantic makes the schema of them.

Only the types of Python's library and pydantic are known, and classes of the source by their fields. Names that the
source does not import have their usual meaning: clients send a function alone, without the imports above it.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import json
import pathlib
import types
import typing
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ForwardRef, Literal, Union

from perdure.core.errors import SourceInvalid

TYPES_MAX = 1_000
"""How many types and values the annotations of one tool may name: pydantic takes a millisecond for some."""

Scope = Mapping[str, ast.expr | ast.ClassDef | str]
"""Name -> what stands for it: an expression, a class, or the bare name of what was imported."""

_UNKNOWN: Any = object()
"""An expression has no value that can be read."""

_LISTS = "list List Sequence MutableSequence Iterable Iterator Collection Deque deque"
_SETS = "set Set frozenset FrozenSet AbstractSet MutableSet"
_DICTS = "dict Dict Mapping MutableMapping DefaultDict OrderedDict defaultdict"
_TYPING = "Optional Union Any Final ClassVar Required NotRequired NamedTuple"
_ENUM = "Enum IntEnum StrEnum Flag IntFlag"
_PYDANTIC = (
    "BaseModel RootModel UUID4 HttpUrl AnyUrl PositiveInt NonNegativeInt NegativeInt PositiveFloat NonNegativeFloat"
    " StrictStr StrictInt StrictFloat StrictBool"
)
_CONSTRAINED = ("conint", "constr", "confloat", "condecimal", "conlist")


@functools.cache
def _library() -> Mapping[str, Any]:
    """Bare name -> the type of a library that it means."""
    import pydantic  # needed only where a tool is defined, and it costs a tenth of a second
    import typing_extensions

    return {
        **{one.__name__: one for one in (str, int, float, bool, bytes, complex, object, tuple)},
        **{one.__name__: one for one in (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)},
        **{one.__name__: one for one in (uuid.UUID, decimal.Decimal, pathlib.Path)},
        **dict.fromkeys(_LISTS.split(), list),
        **dict.fromkeys(_SETS.split(), set),
        **dict.fromkeys(_DICTS.split(), dict),
        **{name: getattr(typing, name) for name in _TYPING.split()},
        **{name: getattr(enum, name) for name in _ENUM.split()},
        **{name: getattr(pydantic, name) for name in _PYDANTIC.split()},
        "EmailStr": Annotated[str, pydantic.WithJsonSchema({"type": "string", "format": "email"})],
        "TypedDict": typing_extensions.TypedDict,  # pydantic refuses the library's before Python 3.12
        "Text": str,
        "LiteralString": str,
        "Tuple": tuple,
        "NoneType": None,
    }


class SourceTypes:
    """The types of one module."""

    def __init__(self, module: ast.Module) -> None:
        self._names: Scope = _scope(module.body)
        self._classes: dict[ast.ClassDef, Any] = {}
        self._busy: list[ast.AST] = []
        self._count = 0

    def type_of(self, node: ast.expr, scope: Scope | None = None) -> Any:
        """The type that an annotation names. Raises: SourceInvalid: it can't be known without running the source."""
        scope = self._names if scope is None else scope
        self._count_one(node)
        with _convert_errors(node, f"the annotation `{_text(node)}` can't be read from the source"):
            match node:
                case ast.Constant(value=None):
                    return None
                case ast.Constant(value=str(text)):
                    return self.type_of(_annotation(text, node), scope)
                case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                    return Union[self.type_of(left, scope), self.type_of(right, scope)]  # noqa: UP007
                case ast.Subscript(value=outer, slice=ast.Tuple(elts=items)):
                    return self._generic(outer, items, scope)
                case ast.Subscript(value=outer, slice=item):
                    return self._generic(outer, [item], scope)
                case ast.Call(func=func, args=[_, original]) if self._simple_name(func, scope) == "NewType":
                    return self.type_of(original, scope)
                case ast.Call(func=func, keywords=keywords) if (name := self._simple_name(func, scope)) in _CONSTRAINED:
                    import pydantic

                    return getattr(pydantic, name)(**self._words(keywords, scope))
                case ast.Call(func=func) if self._simple_name(func, scope) == "TypeVar":
                    return Any
                case ast.Name() | ast.Attribute():
                    found = self._found(node, scope)
                    if isinstance(found, ast.ClassDef):
                        return self._class(found, scope)
                    if isinstance(found, ast.expr):
                        return self._once(found, self.type_of)
                    if found is not None and found in _library():
                        return _library()[found]
        raise SourceInvalid(
            f"the annotation `{_text(node)}` can't be read from the source: use types of Python's library, or define"
            " it in the source as a pydantic model, dataclass, TypedDict, NamedTuple or Enum; or give a json_schema",
            line=node.lineno,
        )

    def default_of(self, node: ast.expr | None, scope: Scope | None = None) -> Any:
        """The default of a parameter or field: `...` for none, a pydantic `Field`, or the value."""
        scope = self._names if scope is None else scope
        match node:
            case None:
                return ...
            case ast.Constant() if _is_ellipsis(node):
                return ...
            case ast.Call(func=func) if self._simple_name(func, scope) in ("Field", "field"):
                return self._field(node, scope)
        value = self._value(node, scope)
        return _field(default_factory=None) if value is _UNKNOWN else value

    def _generic(self, outer: ast.expr, items: Sequence[ast.expr], scope: Scope) -> Any:
        """A type with what stands in its brackets."""
        name = self._simple_name(outer, scope) or ""
        if name == "Literal":
            return Literal[tuple(self._literal(item, scope) for item in items)]
        if name == "Annotated":
            return Annotated[self.type_of(items[0], scope), *(self._note(note, scope) for note in items[1:])]
        made = self.type_of(outer, scope)
        inner = [... if _is_ellipsis(item) else self.type_of(item, scope) for item in items]
        return made[tuple(inner) if len(inner) > 1 else inner[0]]

    def _count_one(self, node: ast.expr) -> None:
        self._count += 1
        if self._count > TYPES_MAX:
            raise SourceInvalid(
                f"it names more than {TYPES_MAX:,} types and values: give a json_schema", line=node.lineno
            )

    def _literal(self, node: ast.expr, scope: Scope) -> Any:
        self._count_one(node)
        if isinstance(node, ast.Subscript):
            return self.type_of(node, scope)
        value = self._value(node, scope)
        if not isinstance(value, str | int | bytes | enum.Enum | None):
            raise SourceInvalid(f"the literal `{_text(node)}` can't be read from the source", line=node.lineno)
        return value

    def _note(self, note: ast.expr, scope: Scope) -> Any:
        """Read one annotation after the type in `Annotated`: a string or a `Field`; None for anything else."""
        if isinstance(note, ast.Call) and self._simple_name(note.func, scope) in ("Field", "Query"):
            return self._field(note, scope)
        return note.value if isinstance(note, ast.Constant) and isinstance(note.value, str) else None

    def _field(self, call: ast.Call, scope: Scope) -> Any:
        words = self._words(call.keywords, scope)
        default = next(iter(call.args), None) or next(
            (one.value for one in call.keywords if one.arg == "default"), None
        )
        if default is not None and not _is_ellipsis(default):
            value = self._value(default, scope)
            words |= {"default_factory": None} if value is _UNKNOWN else {"default": value}
        return _field(**words)

    def _words(self, keywords: Sequence[ast.keyword], scope: Scope) -> dict[str, Any]:
        """The keywords of a call whose values can be read; a factory counts as one that makes None."""
        words = {word.arg: self._value(word.value, scope) for word in keywords if word.arg}
        factory = {"default_factory": None} if "default_factory" in words else {}
        return {name: value for name, value in words.items() if value is not _UNKNOWN} | factory

    def _class(self, node: ast.ClassDef, scope: Scope) -> Any:
        if node in self._busy:
            return ForwardRef(node.name)  # a class may hold itself
        if node not in self._classes:
            with _convert_errors(node, f"class {node.name} can't be built"):
                self._classes[node] = self._once(node, lambda _: self._build(node, scope))
        if not self._busy:
            known = {one.name: made for one, made in self._classes.items()}
            for made in known.values():
                if hasattr(made, "model_rebuild"):
                    made.model_rebuild(raise_errors=False, _types_namespace=known)
        return self._classes[node]

    def _build(self, node: ast.ClassDef, scope: Scope) -> Any:
        """The class with its fields and values, and nothing that would have to be run, such as its methods."""
        decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        is_dataclass = "dataclass" in [self._simple_name(one, scope) for one in decorators]
        bases = [self.type_of(base, scope) for base in node.bases if self._simple_name(base, scope) != "Generic"]
        if not bases and not is_dataclass:
            raise SourceInvalid(
                f"class {node.name} is no pydantic model, dataclass, TypedDict, NamedTuple or Enum, so no schema can be"
                " made of it: make it one, or give a json_schema",
                line=node.lineno,
            )
        inside = {**scope, **_scope(node.body)}
        body: dict[str, Any] = {"__doc__": ast.get_docstring(node), "__module__": __name__, "__annotations__": {}}
        for line in node.body:
            match line:
                case ast.AnnAssign(target=ast.Name(id=name)) if name != "model_config":
                    body["__annotations__"][name] = self.type_of(line.annotation, inside)
                    if (default := self.default_of(line.value, inside)) is not ...:
                        body[name] = default
                case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Call(keywords=keywords)):
                    body["model_config"] = self._words(keywords, inside)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                    body[name] = self._member(node, name, value, inside)
        made: Any = types.new_class(
            node.name, tuple(bases), self._words(node.keywords, scope), lambda namespace: namespace.update(body)
        )
        return dataclasses.dataclass(kw_only=True)(made) if is_dataclass else made

    def _member(self, node: ast.ClassDef, name: str, value: ast.expr, scope: Scope) -> Any:
        """A value of a class, such as an Enum's."""
        self._count_one(value)
        if isinstance(value, ast.Call) and self._simple_name(value.func, scope) == "auto":
            return enum.auto()
        if (known := self._value(value, scope)) is _UNKNOWN:
            raise SourceInvalid(f"the value of {node.name}.{name} can't be read from the source", line=value.lineno)
        return known

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        """The value that an expression writes; `_UNKNOWN`: none that JSON has, or it would have to be run."""
        match node:
            case ast.Attribute(value=owner, attr=name) if isinstance(found := self._found(owner, scope), ast.ClassDef):
                made = self._class(found, scope)
                return made.__members__.get(name, _UNKNOWN) if isinstance(made, enum.EnumMeta) else _UNKNOWN
            case ast.Name(id=name) if isinstance(found := scope.get(name), ast.expr):
                return self._once(found, lambda inner: self._value(inner, self._names))
        try:
            value = ast.literal_eval(node)
            json.dumps(value, allow_nan=False, default=list)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return _UNKNOWN
        return value

    def _once(self, node: Any, work: Callable[[Any], Any]) -> Any:
        """What `work` makes of the node, which must not lead back to itself."""
        if node in self._busy:
            raise SourceInvalid(f"`{_text(node)}` refers to itself", line=node.lineno)
        self._busy.append(node)
        try:
            return work(node)
        finally:
            self._busy.pop()

    def _found(self, node: ast.expr, scope: Scope) -> ast.expr | ast.ClassDef | str | None:
        """What a name stands for: a class or expression of the source, or the bare name of something of a library."""
        match node:
            case ast.Name(id=name):
                return scope.get(name, name)
            case ast.Attribute(value=owner, attr=name):
                inside = self._found(owner, scope)
                return _scope(inside.body).get(name) if isinstance(inside, ast.ClassDef) else name
            case ast.Subscript(value=owner):  # a base class such as Generic[T]
                return self._found(owner, scope)
        return None

    def _simple_name(self, node: ast.expr, scope: Scope) -> str | None:
        found = self._found(node, scope)
        return found if isinstance(found, str) else None


def _field(**words: Any) -> Any:
    """A pydantic `Field`, of the keywords that it knows."""
    import pydantic

    known = inspect.signature(pydantic.Field).parameters
    if "default_factory" in words:
        words |= {"default_factory": lambda: None}  # it may be left out, and what it is then is not known
        words.pop("default", None)
    return pydantic.Field(**{name: value for name, value in words.items() if name in known})


@contextlib.contextmanager
def _convert_errors(node: ast.AST, what: str) -> Iterator[None]:
    """Whatever a library refuses with, such as a TypeError for the order of fields, as SourceInvalid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as pydantic's about names of fields
            yield
    except (SourceInvalid, RecursionError):
        raise
    except Exception as error:
        raise SourceInvalid(f"{what}: {error}", line=getattr(node, "lineno", None)) from error


def _scope(body: Sequence[ast.stmt]) -> dict[str, ast.expr | ast.ClassDef | str]:
    """What the names of a module or class stand for, as far as that can be seen without running it."""
    names_found: dict[str, ast.expr | ast.ClassDef | str] = {}
    for line in body:
        match line:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                names_found |= {alias.asname or alias.name: alias.name.rpartition(".")[2] for alias in names}
            case ast.ClassDef(name=name):
                names_found[name] = line
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names_found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names_found[name] = value
    return names_found


def _annotation(text: str, node: ast.expr) -> ast.expr:
    """An annotation that is written as a text."""
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SourceInvalid(f"the annotation {text[:80]!r} is no type", line=node.lineno) from error
    for inner in ast.walk(expression):
        if hasattr(inner, "lineno"):
            inner.lineno = node.lineno
    return expression


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _text(node: ast.AST) -> str:
    return f"{ast.unparse(node):.80}"
