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
        **{entry.__name__: entry for entry in (str, int, float, bool, bytes, complex, object, tuple)},
        **{entry.__name__: entry for entry in (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)},
        **{entry.__name__: entry for entry in (uuid.UUID, decimal.Decimal, pathlib.Path)},
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
        """Return the type that an annotation names. Raises: SourceInvalid: only running the source could tell it."""
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

                    return getattr(pydantic, name)(**self._keywords(keywords, scope))
                case ast.Call(func=func) if self._simple_name(func, scope) == "TypeVar":
                    return Any
                case ast.Name() | ast.Attribute():
                    target = self._resolve(node, scope)
                    if isinstance(target, ast.ClassDef):
                        return self._class(target, scope)
                    if isinstance(target, ast.expr):
                        return self._without_circle(target, self.type_of)
                    if target is not None and target in _library():
                        return _library()[target]
        raise SourceInvalid(
            f"the annotation `{_text(node)}` can't be read from the source: use types of Python's library, or define"
            " it in the source as a pydantic model, dataclass, TypedDict, NamedTuple or Enum; or give a json_schema",
            line=node.lineno,
        )

    def default_of(self, node: ast.expr | None, scope: Scope | None = None) -> Any:
        """Return the default of a parameter or field: `...` for none, a pydantic `Field`, or the value."""
        scope = self._names if scope is None else scope
        if node is None or _is_ellipsis(node):
            return ...
        if isinstance(node, ast.Call) and self._simple_name(node.func, scope) in ("Field", "field"):
            return self._field(node, scope)
        value = self._value(node, scope)
        return _pydantic_field(default_factory=None) if value is _UNKNOWN else value

    def _generic(self, outer: ast.expr, items: Sequence[ast.expr], scope: Scope) -> Any:
        """Return a type with what stands in its brackets."""
        name = self._simple_name(outer, scope) or ""
        if name == "Literal":
            return Literal[tuple(self._literal(item, scope) for item in items)]
        if name == "Annotated":
            return Annotated[self.type_of(items[0], scope), *(self._note(note, scope) for note in items[1:])]
        result = self.type_of(outer, scope)
        inner = [... if _is_ellipsis(item) else self.type_of(item, scope) for item in items]
        return result[tuple(inner) if len(inner) > 1 else inner[0]]

    def _count_one(self, node: ast.expr) -> None:
        """Count one more type or value. Raises: SourceInvalid: there are too many."""
        self._count += 1
        if self._count > TYPES_MAX:
            raise SourceInvalid(
                f"it names more than {TYPES_MAX:,} types and values: give a json_schema", line=node.lineno
            )

    def _literal(self, node: ast.expr, scope: Scope) -> Any:
        """Return one value of a `Literal`."""
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
        """Return the pydantic `Field` of a call of `Field` or `field`."""
        words = self._keywords(call.keywords, scope)
        named = (keyword.value for keyword in call.keywords if keyword.arg == "default")
        default = next(iter(call.args), None) or next(named, None)
        if default is not None and not _is_ellipsis(default):
            value = self._value(default, scope)
            words |= {"default_factory": None} if value is _UNKNOWN else {"default": value}
        return _pydantic_field(**words)

    def _keywords(self, keywords: Sequence[ast.keyword], scope: Scope) -> dict[str, Any]:
        """Return the keywords of a call whose values can be read; a factory counts as one that makes None."""
        words = {word.arg: self._value(word.value, scope) for word in keywords if word.arg}
        factory = {"default_factory": None} if "default_factory" in words else {}
        return {name: value for name, value in words.items() if value is not _UNKNOWN} | factory

    def _class(self, node: ast.ClassDef, scope: Scope) -> Any:
        """Return the class that a definition of the source stands for, built once."""
        if node in self._busy:
            return ForwardRef(node.name)  # a class may hold itself
        if node not in self._classes:
            with _convert_errors(node, f"class {node.name} can't be built"):
                self._classes[node] = self._without_circle(node, lambda _: self._build_class(node, scope))
        if not self._busy:
            classes = {definition.name: built for definition, built in self._classes.items()}
            for built in classes.values():
                if hasattr(built, "model_rebuild"):
                    built.model_rebuild(raise_errors=False, _types_namespace=classes)
        return self._classes[node]

    def _build_class(self, node: ast.ClassDef, scope: Scope) -> Any:
        """Build a class with its fields and values, and nothing that would have to be run, such as its methods."""
        decorators = [line.func if isinstance(line, ast.Call) else line for line in node.decorator_list]
        is_dataclass = "dataclass" in [self._simple_name(decorator, scope) for decorator in decorators]
        bases = [self.type_of(base, scope) for base in node.bases if self._simple_name(base, scope) != "Generic"]
        if not bases and not is_dataclass:
            raise SourceInvalid(
                f"class {node.name} is no pydantic model, dataclass, TypedDict, NamedTuple or Enum, so no schema can be"
                " made of it: make it one, or give a json_schema",
                line=node.lineno,
            )
        class_scope = {**scope, **_scope(node.body)}
        body: dict[str, Any] = {"__doc__": ast.get_docstring(node), "__module__": __name__, "__annotations__": {}}
        for line in node.body:
            match line:
                case ast.AnnAssign(target=ast.Name(id=name)) if name != "model_config":
                    body["__annotations__"][name] = self.type_of(line.annotation, class_scope)
                    if (default := self.default_of(line.value, class_scope)) is not ...:
                        body[name] = default
                case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Call(keywords=keywords)):
                    body["model_config"] = self._keywords(keywords, class_scope)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                    body[name] = self._member_value(node, name, value, class_scope)
        result: Any = types.new_class(
            node.name, tuple(bases), self._keywords(node.keywords, scope), lambda namespace: namespace.update(body)
        )
        return dataclasses.dataclass(kw_only=True)(result) if is_dataclass else result

    def _member_value(self, node: ast.ClassDef, name: str, value: ast.expr, scope: Scope) -> Any:
        """Return a value of a class, such as an Enum's. Raises: SourceInvalid."""
        self._count_one(value)
        if isinstance(value, ast.Call) and self._simple_name(value.func, scope) == "auto":
            return enum.auto()
        member = self._value(value, scope)
        if member is _UNKNOWN:
            raise SourceInvalid(f"the value of {node.name}.{name} can't be read from the source", line=value.lineno)
        return member

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value that an expression writes; `_UNKNOWN`: none that JSON has, or it would have to be run."""
        match node:
            case ast.Attribute(value=owner, attr=name) if isinstance(
                outer := self._resolve(owner, scope), ast.ClassDef
            ):
                result = self._class(outer, scope)
                return result.__members__.get(name, _UNKNOWN) if isinstance(result, enum.EnumMeta) else _UNKNOWN
            case ast.Name(id=name) if isinstance(target := scope.get(name), ast.expr):
                return self._without_circle(target, lambda inner: self._value(inner, self._names))
        try:
            value = ast.literal_eval(node)
            json.dumps(value, allow_nan=False, default=list)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return _UNKNOWN
        return value

    def _without_circle(self, node: Any, work: Callable[[Any], Any]) -> Any:
        """Return `work(node)`. Raises: SourceInvalid: the work leads back to the node."""
        if node in self._busy:
            raise SourceInvalid(f"`{_text(node)}` refers to itself", line=node.lineno)
        self._busy.append(node)
        try:
            return work(node)
        finally:
            self._busy.pop()

    def _resolve(self, node: ast.expr, scope: Scope) -> ast.expr | ast.ClassDef | str | None:
        """Return what a name stands for: a class or expression of the source, or a bare name of a library."""
        match node:
            case ast.Name(id=name):
                return scope.get(name, name)
            case ast.Attribute(value=owner, attr=name):
                class_scope = self._resolve(owner, scope)
                return _scope(class_scope.body).get(name) if isinstance(class_scope, ast.ClassDef) else name
            case ast.Subscript(value=owner):  # a base class such as Generic[T]
                return self._resolve(owner, scope)
        return None

    def _simple_name(self, node: ast.expr, scope: Scope) -> str | None:
        """Return the bare name of something of a library; None for anything else."""
        target = self._resolve(node, scope)
        return target if isinstance(target, str) else None


def _pydantic_field(**words: Any) -> Any:
    """Return a pydantic `Field` with those of the keywords that it knows."""
    import pydantic

    available = inspect.signature(pydantic.Field).parameters
    if "default_factory" in words:
        words |= {"default_factory": lambda: None}  # it may be left out, and what it is then is not known
        words.pop("default", None)
    return pydantic.Field(**{name: value for name, value in words.items() if name in available})


@contextlib.contextmanager
def _convert_errors(node: ast.AST, what: str) -> Iterator[None]:
    """Raise whatever a library refuses with, such as a TypeError for the order of fields, as SourceInvalid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as pydantic's about names of fields
            yield
    except (SourceInvalid, RecursionError):
        raise
    except Exception as error:
        raise SourceInvalid(f"{what}: {error}", line=getattr(node, "lineno", None)) from error


def _scope(body: Sequence[ast.stmt]) -> dict[str, ast.expr | ast.ClassDef | str]:
    """Return what the names of a module or class stand for, as far as that can be seen without running it."""
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
    """Parse an annotation that is written as a text. Raises: SourceInvalid."""
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
    """Return an expression as source text, cut."""
    return f"{ast.unparse(node):.80}"
