"""A tool's source text: which function it is, and what a model is told of it. It is read here, never run."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import InvalidInput, SchemaMismatch, SourceInvalid
from perdure.core.tools.schema import parameters_schema
from perdure.core.tools.schema_docs import read_docs
from perdure.core.tools.source_types import SourceTypes

__all__ = [
    "HIDDEN",
    "NAME_MAX_CHARS",
    "SOURCE_MAX_CHARS",
    "SourceTool",
    "check_tool_name",
    "needs_agent",
    "read_source",
]

NAME_MAX_CHARS = 48
SOURCE_MAX_CHARS = 500_000

HIDDEN = ("agent_state", "client")
"""Parameters that no model fills: the agent's blocks, and Letta's client, which is None here."""

_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTool:
    """What a source says of its tool.

    Args:
        source: as it is kept: without the indentation that a function within something else has.
        parameters: a JSON schema of type object.
        takes_agent: the function has a parameter `agent_state`.
        left_empty: parameters of the function that get None, because nothing here fills them.
    """

    name: str
    function: str
    source: str
    description: str
    parameters: Mapping[str, Any]
    takes_agent: bool
    left_empty: tuple[str, ...] = ()


def check_tool_name(name: str) -> str:
    """The name, if models can call a tool by it. Raises: InvalidInput."""
    if not _NAME.fullmatch(name) or len(name) > NAME_MAX_CHARS:
        raise InvalidInput(
            f"tool name {name[:80]!r} can't be used: up to {NAME_MAX_CHARS} letters, digits, _ and -, no spaces,"
            " beginning with a letter or _"
        )
    return name


def read_source(
    source: str,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> SourceTool:
    """What a Python source says of its tool: the function of this name, else its last public one.

    Args:
        description: in place of what the docstring says.
        parameters: a JSON schema in place of the one that the signature says. It must fit the signature.
    Raises: SourceInvalid: it does not parse, has no such function, says nothing of what it is for, or has an annotation
        that can't be read, with line and reason; SchemaMismatch: the given schema contradicts the signature.
    """
    try:
        return _read(source, name, description, parameters)
    except RecursionError:
        raise SourceInvalid("it is nested too deep to be read") from None


def needs_agent(source: str, name: str) -> bool:
    """Whether the function of a Python source has a parameter `agent_state` that can't be left out."""
    try:
        _, module = _parsed(source)
        arguments = _arguments(_function(module, name))
    except SourceInvalid:  # it is told by what runs it
        return False
    return any(argument.arg == "agent_state" and default is None for argument, default in arguments)


def _read(source: str, name: str | None, description: str | None, parameters: Mapping[str, Any] | None) -> SourceTool:
    source, module = _parsed(source)
    function = _function(module, name)
    check_tool_name(function.name)
    docs = read_docs(ast.get_docstring(function))
    description = description or docs.description
    if not description.strip():
        raise SourceInvalid(
            f"function {function.name} has a missing docstring: its first line tells the model what the tool is for",
            line=function.lineno,
        )
    types = SourceTypes(module)
    arguments = _arguments(function)
    if parameters is None:
        parameters = _schema(function, arguments, types, docs.parameters)
    else:
        parameters = _fitting(function, arguments, types, parameters)
    names = {argument.arg for argument, _ in arguments}
    return SourceTool(
        name=function.name,
        function=function.name,
        source=source,
        description=description,
        parameters=parameters,
        takes_agent="agent_state" in names,
        left_empty=tuple(arg.arg for arg, default in arguments if arg.arg == "client" and default is None),
    )


def _parsed(source: str) -> tuple[str, ast.Module]:
    source = source.removeprefix("\ufeff")  # as editors begin files with
    if not source.strip():
        raise SourceInvalid("the source is empty: write a function with a docstring")
    if len(source) > SOURCE_MAX_CHARS:
        raise SourceInvalid(f"the source has {len(source):,} characters, the limit is {SOURCE_MAX_CHARS:,}")
    if (bad := _UNREADABLE.search(source)) is not None:
        what = "a NUL character" if bad.group() == "\0" else "half of a surrogate pair, which is no character"
        raise SourceInvalid(f"it has {what}: take it away", line=source.count("\n", 0, bad.start()) + 1)
    last: Exception | None = None
    for text in dict.fromkeys((source, textwrap.dedent(source))):
        try:
            return text, ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            last = error
    if isinstance(last, SyntaxError):
        told = f": `{last.text.strip():.120}`" if last.text and last.text.strip() else ""
        raise SourceInvalid(f"{last.msg}{told}", line=last.lineno)
    why = "it is nested too deep" if isinstance(last, MemoryError | RecursionError) else str(last)
    raise SourceInvalid(f"the source does not parse: {why}")


def _function(module: ast.Module, name: str | None) -> ast.FunctionDef | ast.AsyncFunctionDef:
    found = [line for line in module.body if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef)]
    public = [function for function in found if not function.name.startswith("_")]
    if name is not None:
        for function in reversed(found):
            if function.name == name:
                return function
        there = ", ".join(dict.fromkeys(function.name for function in public)) or "none"
        raise SourceInvalid(f"the source has no function {name[:80]!r} at its top level; there are: {there}")
    if not public:
        raise SourceInvalid("the source has no public function at its top level: write `def name(...):` there")
    return public[-1]


_Arguments = list[tuple[ast.arg, ast.expr | None]]


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> _Arguments:
    """(parameter, default) of those that can be given by name, in order."""
    given = function.args
    if given.posonlyargs:
        raise SourceInvalid(
            f"parameter {given.posonlyargs[0].arg!r} of {function.name} can't be filled by a model: take the `/` away",
            line=function.lineno,
        )
    defaults = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
    return [*zip(given.args, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]


def _schema(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    arguments: _Arguments,
    types: SourceTypes,
    texts: Mapping[str, str],
) -> dict[str, Any]:
    for star in (function.args.vararg, function.args.kwarg):
        if star is not None:
            raise SourceInvalid(
                f"parameter *{star.arg} of {function.name} can't be filled by a model: name each one, or give a"
                " json_schema",
                line=star.lineno,
            )
    fields: dict[str, tuple[Any, Any, str | None]] = {}
    for argument, default in arguments:
        if argument.arg in HIDDEN:
            continue
        if argument.annotation is None:
            raise SourceInvalid(
                f"parameter {argument.arg!r} of {function.name} has no annotation, such as `{argument.arg}: str`",
                line=argument.lineno,
            )
        annotation = types.type_of(argument.annotation)
        fields[argument.arg] = (annotation, types.default_of(default), texts.get(argument.arg))
    try:
        schema = parameters_schema(function.name, fields)
    except Exception as error:  # pydantic refuses with many kinds, such as TypeError for a constraint that can't hold
        raise SourceInvalid(f"no JSON schema can be made of its signature: {error}", line=function.lineno) from error
    # pydantic sorts the keys; clients have always seen them in this order.
    properties = {name: _move_last(value, "description") for name, value in schema.get("properties", {}).items()}
    first = {"type": "object", "properties": properties}
    return (
        first | {key: schema[key] for key in ("required", "$defs") if key in schema} | {"additionalProperties": False}
    )


def _move_last(schema: Mapping[str, Any], key: str) -> dict[str, Any]:
    last = {key: schema[key]} if key in schema else {}
    return {name: value for name, value in schema.items() if name != key} | last


def _fitting(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    arguments: _Arguments,
    types: SourceTypes,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """A given schema, closed where the function takes nothing else. Raises: SchemaMismatch."""
    properties = given.get("properties", {})
    required = given.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        raise InvalidInput("json_schema: `properties` must be an object and `required` a list of names")
    for name in required:
        if name not in properties:
            raise SchemaMismatch(str(name), "the schema requires it and does not describe it")
    known = {argument.arg: (argument, default) for argument, default in arguments if argument.arg not in HIDDEN}
    for name, schema in properties.items():
        if name in HIDDEN:
            raise SchemaMismatch(name, "it is not filled by the model: leave it out of the schema")
        if name not in known:
            if function.args.kwarg is None:
                there = ", ".join(known) or "none"
                raise SchemaMismatch(
                    name, f"the schema has it, function {function.name} does not; its own are: {there}"
                )
            continue
        _check_type(name, schema, known[name][0].annotation, types)
    for name, (_, default) in known.items():
        if default is None and name not in properties:
            raise SchemaMismatch(name, f"function {function.name} needs it, and the schema does not have it")
        if default is None and name not in required and "default" not in _mapping(properties[name]):
            raise SchemaMismatch(
                name, f"function {function.name} needs it, and the schema lets it be left out: require it"
            )
    made = {"type": "object", **given, "properties": dict(properties)}
    if function.args.kwarg is None:
        made["additionalProperties"] = False
    return made


def _check_type(name: str, schema: Any, annotation: ast.expr | None, types: SourceTypes) -> None:
    """Raises: SchemaMismatch: no value could be right for both. What can't be read from the source is not looked at."""
    if annotation is None:
        return
    try:
        read = parameters_schema(name, {name: (types.type_of(annotation), ..., None)})
    except Exception:  # it can't be read, or pydantic makes nothing of it
        return
    wanted, has = _kinds(_mapping(schema)), _kinds(read["properties"][name])
    if wanted and has and not _meet(wanted, has):
        raise SchemaMismatch(
            name, f"the schema says {' or '.join(sorted(wanted))}, its annotation `{ast.unparse(annotation):.60}`"
        )


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema lets through; empty: any, or not known."""
    if "$ref" in schema:
        return set()
    if isinstance(branches := schema.get("anyOf") or schema.get("oneOf"), list):
        found = [_kinds(_mapping(branch)) for branch in branches]
        return set().union(*found) if all(found) else set()
    kind = schema.get("type")
    return {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()


def _meet(one: set[str], other: set[str]) -> bool:
    return bool(one & other) or ({"integer", "number"} & one != set() and {"integer", "number"} & other != set())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
