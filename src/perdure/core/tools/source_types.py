"""Annotations of source text as JSON schemas, read and never run.

What comes out is what pydantic would make of the same annotations. Names that the source does not import are known by
their usual meaning: clients send a function alone, without the imports above it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.core.errors import SourceInvalid

__all__ = ["NO_DEFAULT", "SourceTypes"]

NO_DEFAULT: Any = object()
"""There is no default, or none that can be read."""

Scope = Mapping[str, ast.expr | ast.ClassDef | str]
"""Name -> what stands for it: an expression, a class, or the dotted name that was imported."""

_SIMPLE: Mapping[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "NoneType": {"type": "null"},
    "bytes": {"type": "string", "format": "binary"},
    "complex": {"type": "string"},
    "Any": {},
    "object": {},
    "Text": {"type": "string"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "timedelta": {"type": "string", "format": "duration"},
    "UUID": {"type": "string", "format": "uuid"},
    "UUID4": {"type": "string", "format": "uuid4"},
    "Decimal": {"anyOf": [{"type": "number"}, {"type": "string"}]},
    "Path": {"type": "string", "format": "path"},
    "HttpUrl": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083},
    "AnyUrl": {"type": "string", "format": "uri", "minLength": 1},
    "EmailStr": {"type": "string", "format": "email"},
    "PositiveInt": {"type": "integer", "exclusiveMinimum": 0},
    "NonNegativeInt": {"type": "integer", "minimum": 0},
    "NegativeInt": {"type": "integer", "exclusiveMaximum": 0},
    "PositiveFloat": {"type": "number", "exclusiveMinimum": 0},
    "NonNegativeFloat": {"type": "number", "minimum": 0},
    "StrictStr": {"type": "string"},
    "StrictInt": {"type": "integer"},
    "StrictFloat": {"type": "number"},
    "StrictBool": {"type": "boolean"},
}

_LISTS = frozenset(
    {"list", "List", "Sequence", "MutableSequence", "Iterable", "Collection", "Deque", "deque", "Iterator"}
)
_SETS = frozenset({"set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet"})
_DICTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping", "DefaultDict", "OrderedDict", "defaultdict"})
_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"})
_WRAPPERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar", "InitVar"})

_KINDS: Mapping[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}

_CONSTRAINTS: Mapping[str, str] = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "regex": "pattern",
    "description": "description",
    "examples": "examples",
}

_SIZES = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"), "object": ("minProperties",) * 2}


class SourceTypes:
    """The types of one module. `defs` collects the schemas of classes that were met, by name."""

    def __init__(self, module: ast.Module) -> None:
        self.defs: dict[str, Any] = {}
        self.names: Scope = _scope(module.body)
        self._busy: list[ast.AST] = []

    def schema(self, node: ast.expr, scope: Scope | None = None) -> dict[str, Any]:
        """The schema of an annotation. Raises: SourceInvalid: it says something that has none, or can't be known."""
        return self._schema(node, self.names if scope is None else scope)

    def _aliased(self, node: ast.expr) -> dict[str, Any]:
        """What a name of the source stands for."""
        if any(one is node for one in self._busy):
            raise SourceInvalid(f"`{_text(node)}` refers to itself", line=node.lineno)
        self._busy.append(node)
        try:
            return self.schema(node)
        finally:
            self._busy.pop()

    def _schema(self, node: ast.expr, scope: Scope) -> dict[str, Any]:
        match node:
            case ast.Constant(value=None):
                return {"type": "null"}
            case ast.Constant(value=str(text)):
                return self.schema(_parsed(text, node), scope)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return _union([self.schema(left, scope), self.schema(right, scope)])
            case ast.Subscript(value=outer, slice=inner):
                if (made := self._generic(node, self._named(outer, scope), _several(inner), scope)) is not None:
                    return made
            case ast.Call(func=func, args=args) if self._named(func, scope) == "NewType" and len(args) == 2:
                return self.schema(args[1], scope)
            case ast.Call(func=func, keywords=keywords) if (base := self._named(func, scope)) in _CON:
                return self._constrained(dict(_SIMPLE[_CON[str(base)]]), keywords, scope)
            case ast.Call(func=func) if self._named(func, scope) == "TypeVar":
                return {}
            case ast.Name() | ast.Attribute():
                named = self._found(node, scope)
                if isinstance(named, ast.ClassDef):
                    return self._of_class(named, scope)
                if isinstance(named, ast.expr):
                    return self._aliased(named)
                if (bare := self._generic(node, named, None, scope)) is not None:
                    return bare
        raise SourceInvalid(
            f"the annotation `{_text(node)}` can't be read from the source: use types of Python's library, or define"
            " it in the source as a pydantic model, dataclass, TypedDict, NamedTuple or Enum; or give a json_schema",
            line=node.lineno,
        )

    def _generic(
        self, node: ast.expr, name: str | None, inner: list[ast.expr] | None, scope: Scope
    ) -> dict[str, Any] | None:
        """The schema of a type of Python's library, with what is in its brackets; None: it is none."""
        given = inner or []
        if name in _LISTS:
            return {"type": "array", "items": self.schema(given[0], scope) if given else {}}
        if name in _SETS:
            return {"type": "array", "items": self.schema(given[0], scope) if given else {}, "uniqueItems": True}
        if name in ("tuple", "Tuple"):
            return self._tuple(inner, scope)
        if name in _DICTS:
            values = self.schema(given[1], scope) if len(given) > 1 else {}
            return {"type": "object", "additionalProperties": values or True}
        if name == "Optional" and given:
            return _union([self.schema(given[0], scope), {"type": "null"}])
        if name == "Union" and given:
            return _union([self.schema(one, scope) for one in given])
        if name in ("Literal", "LiteralString"):
            return _listed(self._literals(given, scope)) if given else {"type": "string"}
        if name == "Annotated" and given:
            schema = self.schema(given[0], scope)
            for note in given[1:]:
                if isinstance(note, ast.Call) and self._named(note.func, scope) in ("Field", "Query", "Doc"):
                    schema = self._constrained(schema, note.keywords, scope)
            return schema
        if name in _WRAPPERS and given:
            return self.schema(given[0], scope)
        if inner is None and name is not None and name in _SIMPLE:
            return dict(_SIMPLE[name])
        return None

    def _tuple(self, inner: list[ast.expr] | None, scope: Scope) -> dict[str, Any]:
        if inner is None:
            return {"type": "array", "items": {}}
        if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is ...:
            return {"type": "array", "items": self.schema(inner[0], scope)}
        items = [self.schema(one, scope) for one in inner]
        size = {"type": "array", "minItems": len(items), "maxItems": len(items)}
        return size | ({"prefixItems": items} if items else {})

    def _literals(self, given: Sequence[ast.expr], scope: Scope) -> Iterator[Any]:
        for one in given:
            if isinstance(one, ast.Subscript) and self._named(one.value, scope) == "Literal":
                yield from self._literals(_several(one.slice), scope)
                continue
            value = self.value(one, scope)
            if value is NO_DEFAULT or isinstance(value, list | dict):
                raise SourceInvalid(f"the literal `{_text(one)}` can't be read from the source", line=one.lineno)
            yield value

    # -- classes

    def _of_class(self, node: ast.ClassDef, scope: Scope) -> dict[str, Any]:
        """A reference to the schema of a class of the source."""
        if node.name not in self.defs:
            self.defs[node.name] = {}  # a class may hold itself
            self.defs[node.name] = self._class_schema(node, scope)
        return {"$ref": f"#/$defs/{node.name}"}

    def _class_schema(self, node: ast.ClassDef, scope: Scope) -> dict[str, Any]:
        kind = self.kind_of(node, scope)
        docs = ast.get_docstring(node)
        told = {"description": inspect.cleandoc(docs)} if docs else {}
        if kind == "enum":
            return _listed(value for _, value in self._members(node, scope)) | told
        if kind is None:
            raise SourceInvalid(
                f"class {node.name} is no pydantic model, dataclass, TypedDict, NamedTuple or Enum, so no schema can be"
                " made of it: make it one, or give a json_schema",
                line=node.lineno,
            )
        fields = list(self._fields(node, scope, kind))
        required = [name for name, _, needed in fields if needed]
        if kind == "named tuple":
            sizes = {"minItems": len(required), "maxItems": len(fields)}
            return {"type": "array", "prefixItems": [schema for _, schema, _ in fields], **sizes} | told
        schema: dict[str, Any] = {"type": "object", "properties": {name: schema for name, schema, _ in fields}}
        if required:
            schema["required"] = required
        extra = "forbid" if kind in ("dataclass", "typed dict") else self._extra(node, scope)
        if extra in ("forbid", "allow"):
            schema["additionalProperties"] = extra == "allow"
        return schema | told

    def kind_of(self, node: ast.ClassDef, scope: Scope) -> str | None:
        """What a class is: model, dataclass, enum, typed dict, named tuple; None: something else."""
        for decorator in node.decorator_list:
            func = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._named(func, scope) == "dataclass":
                return "dataclass"
        found: str | None = None
        for base in node.bases:
            named = self._found(base, scope)
            if isinstance(named, ast.ClassDef) and named is not node:
                found = self.kind_of(named, scope) or found
            elif isinstance(named, str):
                found = _BASES.get(named, found)
        return found

    def _fields(self, node: ast.ClassDef, scope: Scope, kind: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
        """(name, schema, required) of the fields of a class, those that it inherits first."""
        made: dict[str, tuple[str, dict[str, Any], bool]] = {}
        for base in node.bases:
            named = self._found(base, scope)
            if isinstance(named, ast.ClassDef) and named is not node:
                made |= {field[0]: field for field in self._fields(named, scope, kind)}
        inside = {**scope, **_scope(node.body)}
        total = not any(
            word.arg == "total" and isinstance(word.value, ast.Constant) and word.value.value is False
            for word in node.keywords
        )
        for line in node.body:
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            name, wrapper = line.target.id, ""
            if isinstance(line.annotation, ast.Subscript):
                wrapper = self._named(line.annotation.value, inside) or ""
            if wrapper == "ClassVar" or name == "model_config" or (name.startswith("_") and kind != "typed dict"):
                continue
            schema, needed = self.field(line.annotation, line.value, inside)
            if kind == "typed dict":
                needed = wrapper == "Required" or (total and wrapper != "NotRequired")
            alias = schema.pop("alias", None)
            made[name] = (alias if isinstance(alias, str) else name, schema, needed)
        yield from made.values()

    def field(self, annotation: ast.expr, default: ast.expr | None, scope: Scope) -> tuple[dict[str, Any], bool]:
        """(schema, required) of a field or parameter. `alias` in the schema is another name that it has."""
        schema = self.schema(annotation, scope)
        if default is None:
            return schema, True
        if isinstance(default, ast.Call) and self._named(default.func, scope) in ("Field", "field"):
            words = {word.arg: word.value for word in default.keywords if word.arg}
            value = default.args[0] if default.args else words.get("default")
            schema = self._constrained(schema, default.keywords, scope)
            for name in ("validation_alias", "alias"):
                if name in words:
                    schema["alias"] = self.value(words[name], scope)
            if value is None:
                return schema, "default_factory" not in words
            default = value
        if isinstance(default, ast.Constant) and default.value is ...:
            return schema, True
        value_of = self.value(default, scope)
        return (schema if value_of is NO_DEFAULT else {**schema, "default": value_of}), False

    def _extra(self, node: ast.ClassDef, scope: Scope) -> Any:
        """What a pydantic model does with fields that it does not know."""
        for word in node.keywords:
            if word.arg == "extra":
                return self.value(word.value, scope)
        for line in node.body:
            match line:
                case (
                    ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Call(keywords=words))
                    | ast.AnnAssign(target=ast.Name(id="model_config"), value=ast.Call(keywords=words))
                ):
                    for word in words:
                        if word.arg == "extra":
                            return self.value(word.value, scope)
                case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Dict() as made):
                    config = self.value(made, scope)
                    if isinstance(config, dict) and "extra" in config:
                        return config["extra"]
                case ast.ClassDef(name="Config", body=[*inner]):
                    for one in inner:
                        if isinstance(one, ast.Assign) and _text(one.targets[0]) == "extra":
                            return self.value(one.value, scope)
        for base in node.bases:
            named = self._found(base, scope)
            if isinstance(named, ast.ClassDef) and named is not node:
                return self._extra(named, scope)
        return None

    def _members(self, node: ast.ClassDef, scope: Scope) -> Iterator[tuple[str, Any]]:
        """(name, value) of an Enum's members."""
        texts = any(self._named(base, scope) in ("StrEnum", "str") for base in node.bases)
        last: Any = 0
        for line in node.body:
            if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Name):
                continue
            name = line.targets[0].id
            if name.startswith("_"):
                continue
            if isinstance(line.value, ast.Call) and self._named(line.value.func, scope) == "auto":
                value = name.lower() if texts else (last + 1 if isinstance(last, int) else 1)
            else:
                value = self.value(line.value, scope)
            if value is NO_DEFAULT:
                raise SourceInvalid(f"the value of {node.name}.{name} can't be read from the source", line=line.lineno)
            last = value
            yield name, value

    # -- values and names

    def value(self, node: ast.expr, scope: Scope | None = None) -> Any:
        """The JSON value that an expression writes; NO_DEFAULT: none, or it would have to be run."""
        scope = self.names if scope is None else scope
        if isinstance(node, ast.Attribute):
            owner = self._found(node.value, scope)
            if isinstance(owner, ast.ClassDef) and self.kind_of(owner, scope) == "enum":
                return dict(self._members(owner, scope)).get(node.attr, NO_DEFAULT)
        if isinstance(node, ast.Name) and isinstance(named := scope.get(node.id), ast.expr) and named is not node:
            if any(one is named for one in self._busy):
                return NO_DEFAULT
            self._busy.append(named)
            try:
                return self.value(named, self.names)
            finally:
                self._busy.pop()
        try:
            return _as_json(ast.literal_eval(node))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return NO_DEFAULT

    def _found(self, node: ast.expr, scope: Scope) -> ast.expr | ast.ClassDef | str | None:
        """What a name stands for: a class or expression of the source, or the bare name of something of a library."""
        match node:
            case ast.Name(id=name):
                found = scope.get(name, name)
                return found.rpartition(".")[2] if isinstance(found, str) else found
            case ast.Attribute(value=owner, attr=name):
                inside = self._found(owner, scope)
                if isinstance(inside, ast.ClassDef):
                    return _scope(inside.body).get(name)
                return name
            case ast.Subscript(value=owner):  # a base class such as Generic[T]
                return self._found(owner, scope)
        return None

    def _named(self, node: ast.expr, scope: Scope) -> str | None:
        found = self._found(node, scope)
        return found if isinstance(found, str) else None

    def _constrained(self, schema: dict[str, Any], words: Sequence[ast.keyword], scope: Scope) -> dict[str, Any]:
        """A schema with what `Field(...)` says beside the default."""
        schema = dict(schema)
        for word in words:
            value = self.value(word.value, scope)
            if value is NO_DEFAULT or word.arg is None:
                continue
            if word.arg == "json_schema_extra" and isinstance(value, dict):
                schema |= value
            elif word.arg in ("min_length", "max_length", "min_items", "max_items"):
                _bound(schema, word.arg.startswith("max"), value)
            elif (key := _CONSTRAINTS.get(word.arg)) is not None:
                target = schema if key in ("description", "examples") else _main(schema)
                target[key] = value
        return schema


_CON = {"conint": "int", "constr": "str", "confloat": "float", "condecimal": "Decimal"}

_BASES: Mapping[str, str] = {
    "BaseModel": "model",
    "RootModel": "model",
    "TypedDict": "typed dict",
    "NamedTuple": "named tuple",
    **dict.fromkeys(_ENUMS, "enum"),
}


def _scope(body: Sequence[ast.stmt]) -> dict[str, ast.expr | ast.ClassDef | str]:
    """What the names of a module or class stand for, as far as that can be seen without running it."""
    found: dict[str, ast.expr | ast.ClassDef | str] = {}
    for line in body:
        match line:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                prefix = f"{line.module}." if isinstance(line, ast.ImportFrom) and line.module else ""
                found |= {alias.asname or alias.name: f"{prefix}{alias.name}" for alias in names}
            case ast.ClassDef(name=name):
                found[name] = line
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
            case ast.If(body=inner, orelse=other):
                found |= _scope(other) | _scope(inner)
            case ast.Try(body=inner, handlers=handlers):
                for handler in handlers:
                    found |= _scope(handler.body)
                found |= _scope(inner)
    return found


def _several(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _parsed(text: str, node: ast.expr) -> ast.expr:
    """An annotation that is written as a text."""
    try:
        made = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SourceInvalid(f"the annotation {text[:80]!r} is no type", line=node.lineno) from error
    for inner in ast.walk(made):
        if hasattr(inner, "lineno"):
            inner.lineno = node.lineno
    return made


def _text(node: ast.AST) -> str:
    return f"{ast.unparse(node):.80}"


def _as_json(value: Any) -> Any:
    """A literal as JSON; raises ValueError for what JSON does not have."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if value == value and abs(value) != float("inf"):
            return value
        case list() | tuple():
            return [_as_json(one) for one in value]
        case set() | frozenset():
            return sorted((_as_json(one) for one in value), key=repr)
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _as_json(one) for key, one in value.items()}
    raise ValueError


def _listed(values: Iterator[Any] | Any) -> dict[str, Any]:
    """The schema of these values and no others."""
    given: list[Any] = []
    for value in values:
        if not any(type(one) is type(value) and one == value for one in given):
            given.append(value)
    kinds = {_KINDS.get(type(value)) for value in given}
    kind = kinds.pop() if len(kinds) == 1 else None
    schema: dict[str, Any] = {"enum": given} if len(given) != 1 or isinstance(given[0], list) else {"const": given[0]}
    return schema | ({"type": kind} if kind else {})


def _union(branches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    flat: list[dict[str, Any]] = []
    for branch in branches:
        for one in branch["anyOf"] if set(branch) == {"anyOf"} else [branch]:
            if one not in flat:
                flat.append(one)
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _main(schema: dict[str, Any]) -> dict[str, Any]:
    """Where a constraint goes: of an optional type, to the type."""
    branches = schema.get("anyOf")
    if not isinstance(branches, list):
        return schema
    schema["anyOf"] = branches = [dict(branch) for branch in branches]
    return next((branch for branch in branches if branch.get("type") != "null"), schema)


def _bound(schema: dict[str, Any], most: bool, value: Any) -> None:
    target = _main(schema)
    names = _SIZES.get(str(target.get("type")))
    if names is not None and isinstance(value, int):
        target[names[1].replace("min", "max") if most else names[0]] = value
