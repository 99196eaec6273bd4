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
from collections.abc import Callable, Mapping, Sequence
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


@functools.cache
def _library() -> Mapping[str, Any]:
    """Return name without its module -> the type of a library that it means."""
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
        "Literal": Literal,
        "Annotated": Annotated,
    }


@functools.cache
def _calls() -> Mapping[str, Callable[..., Any]]:
    """Return name of a function or class, without its module -> what to call in place of it."""
    import pydantic

    return {
        **dict.fromkeys(("Field", "field", "Query"), _field),
        **{name: getattr(pydantic, name) for name in ("conint", "constr", "confloat", "condecimal", "conlist")},
        "NewType": lambda name, original: original,
        "TypeVar": lambda *_, **__: Any,
        "ConfigDict": dict,
        "auto": enum.auto,
    }


class SourceTypes:
    """The types that annotations of one module name."""

    def __init__(self, module: ast.Module) -> None:
        self._names: Scope = _scope(module.body)
        self._classes: dict[ast.ClassDef, Any] = {}
        self._busy: list[ast.AST] = []
        self._count = 0

    def type_of(self, node: ast.expr) -> Any:
        """Return the type that an annotation names. Raises: SourceInvalid: only running the source could tell it; any
        error of a library for a type that can't be."""
        result = self._evaluate(node, self._names)
        classes = {definition.name: built for definition, built in self._classes.items()}
        for built in classes.values():
            if hasattr(built, "model_rebuild"):
                built.model_rebuild(raise_errors=False, _types_namespace=classes)
        return result

    def default_of(self, node: ast.expr | None, scope: Scope | None = None) -> Any:
        """Return the default of a parameter or field: `...` for none, a pydantic `Field`, or the value."""
        value = ... if node is None else self._value(node, self._names if scope is None else scope)
        return _field(_UNKNOWN) if value is _UNKNOWN else value

    def _evaluate(self, node: ast.expr, scope: Scope, *, is_type: bool = True) -> Any:
        """Return the type or value of an expression, whose names `scope` explains. A text is an annotation if
        `is_type`, else itself. Raises: SourceInvalid: it would have to be run."""
        self._count += 1
        if self._count > TYPES_MAX:
            raise SourceInvalid(
                f"it names more than {TYPES_MAX:,} types and values: give a json_schema", line=node.lineno
            )
        match node:
            case ast.Constant(value=str(text)) if is_type:
                return self._evaluate(_annotation(text, node), scope)
            case ast.Constant(value=value) if value is ...:
                return ...
            case ast.Constant() | ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.UnaryOp():
                with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    value = ast.literal_eval(node)
                    json.dumps(value, allow_nan=False, default=list)
                    return value
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return Union[self._evaluate(left, scope), self._evaluate(right, scope)]  # noqa: UP007
            case ast.Subscript(value=outer, slice=inner):
                return self._generic(outer, inner.elts if isinstance(inner, ast.Tuple) else [inner], scope)
            case ast.Call(func=func) if (call := _calls().get(self._library_name(func, scope) or "")) is not None:
                values = [self._value(value, scope) for value in node.args]
                return call(*values, **self._keywords(node.keywords, scope))
            case ast.Name() | ast.Attribute():
                match self._resolve(node, scope):
                    case ast.ClassDef() as definition:
                        return self._class(definition, scope)
                    case ast.expr() as target:
                        if isinstance(node, ast.Attribute):  # of a class: a member of an Enum
                            return self._evaluate(node.value, scope).__members__[node.attr]
                        return self._without_circle(
                            target, lambda: self._evaluate(target, self._names, is_type=is_type)
                        )
                    case str(name) if name in _library():
                        return _library()[name]
        raise SourceInvalid(
            f"the {'annotation' if is_type else 'value'} `{_text(node)}` can't be read from the source: use types of"
            " Python's library, or define it in the source as a pydantic model, dataclass, TypedDict, NamedTuple or"
            " Enum; or give a json_schema",
            line=node.lineno,
        )

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression; `_UNKNOWN`: it would have to be run."""
        try:
            return self._evaluate(node, scope, is_type=False)
        except Exception:  # libraries refuse with many kinds
            return _UNKNOWN

    def _keywords(self, keywords: Sequence[ast.keyword], scope: Scope) -> dict[str, Any]:
        """Return the keywords of a call whose values can be read; a default is kept as `_UNKNOWN` if it can't."""
        words = {word.arg: self._value(word.value, scope) for word in keywords if word.arg}
        return {name: value for name, value in words.items() if value is not _UNKNOWN or name.startswith("default")}

    def _generic(self, outer: ast.expr, items: Sequence[ast.expr], scope: Scope) -> Any:
        """Return the generic type `outer[items]`."""
        generic = self._evaluate(outer, scope)
        if generic is Annotated:
            inner = [self._evaluate(items[0], scope), *(self._value(note, scope) for note in items[1:])]
        else:
            inner = [self._evaluate(item, scope, is_type=generic is not Literal) for item in items]
        return generic[tuple(inner) if len(inner) != 1 else inner[0]]

    def _class(self, node: ast.ClassDef, scope: Scope) -> Any:
        """Return the class that a definition of the source stands for, built once."""
        if node in self._busy:
            return ForwardRef(node.name)  # a class may hold itself
        if node not in self._classes:
            self._classes[node] = self._without_circle(node, lambda: self._build_class(node, scope))
        return self._classes[node]

    def _build_class(self, node: ast.ClassDef, scope: Scope) -> Any:
        """Build a class with its fields and values, and nothing that would have to be run, such as its methods."""
        decorators = [line.func if isinstance(line, ast.Call) else line for line in node.decorator_list]
        is_dataclass = "dataclass" in [self._library_name(decorator, scope) for decorator in decorators]
        bases = [self._evaluate(base, scope) for base in node.bases if self._library_name(base, scope) != "Generic"]
        if not bases and not is_dataclass:
            raise SourceInvalid(
                f"class {node.name} is not a pydantic model, dataclass, TypedDict, NamedTuple or Enum, so no schema can"
                " be made of it: make it one, or give a json_schema",
                line=node.lineno,
            )
        class_scope = {**scope, **_scope(node.body)}
        body: dict[str, Any] = {"__doc__": ast.get_docstring(node), "__module__": __name__, "__annotations__": {}}
        for line in node.body:
            match line:
                case ast.AnnAssign(target=ast.Name(id=name)) if name != "model_config":
                    body["__annotations__"][name] = self._evaluate(line.annotation, class_scope)
                    if (default := self.default_of(line.value, class_scope)) is not ...:
                        body[name] = default
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                    body[name] = self._evaluate(value, class_scope, is_type=False)
        words = self._keywords([word for word in node.keywords if word.arg != "metaclass"], scope)
        result: Any = types.new_class(node.name, tuple(bases), words, lambda namespace: namespace.update(body))
        return dataclasses.dataclass(kw_only=True)(result) if is_dataclass else result

    def _without_circle(self, node: ast.expr | ast.ClassDef, work: Callable[[], Any]) -> Any:
        """Return `work()` on a node. Raises: SourceInvalid: the work leads back to the node."""
        if node in self._busy:
            raise SourceInvalid(f"`{_text(node)}` refers to itself", line=node.lineno)
        self._busy.append(node)
        try:
            return work()
        finally:
            self._busy.pop()

    def _resolve(self, node: ast.expr, scope: Scope) -> ast.expr | ast.ClassDef | str | None:
        """Return what a name means: a class or expression of the source, or a library's bare name; None: no name."""
        match node:
            case ast.Name(id=name):
                return scope.get(name, name)
            case ast.Attribute(value=owner, attr=name):
                outer = self._resolve(owner, scope)
                return _scope(outer.body).get(name) if isinstance(outer, ast.ClassDef) else name
            case ast.Subscript(value=owner):  # a base class such as Generic[T]
                return self._resolve(owner, scope)
        return None

    def _library_name(self, node: ast.expr, scope: Scope) -> str | None:
        """Return the name, without its module, of something of a library; None: the node is anything else."""
        target = self._resolve(node, scope)
        return target if isinstance(target, str) else None


def _field(default: Any = ..., **words: Any) -> Any:
    """Return a pydantic `Field` with the default, and those keywords in `words` that it knows."""
    import pydantic

    default = words.pop("default", default)
    if default is _UNKNOWN or words.pop("default_factory", None) is not None:
        words["default_factory"] = lambda: None  # it may be left out, and what it is then is not known
    elif default is not ...:
        words["default"] = default
    available = inspect.signature(pydantic.Field).parameters
    return pydantic.Field(**{name: value for name, value in words.items() if name in available})


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
    """Parse an annotation that is written as a text, in the node `node`. Raises: SourceInvalid."""
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SourceInvalid(f"the annotation {text[:80]!r} is not a type", line=node.lineno) from error
    for inner in ast.walk(expression):
        if hasattr(inner, "lineno"):
            inner.lineno = node.lineno
    return expression


def _text(node: ast.AST) -> str:
    """Return an expression as source text, cut to 80 characters."""
    return f"{ast.unparse(node):.80}"
