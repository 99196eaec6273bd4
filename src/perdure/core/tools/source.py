"""Parse a tool's source text: its function, description and schema. The source never runs here."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import InvalidInput, SchemaMismatch, SourceInvalid
from perdure.core.tools.schema import parameters_schema, parse_docs
from perdure.core.tools.source_types import SourceTypes

NAME_MAX_CHARS = 48
SOURCE_MAX_CHARS = 500_000

HIDDEN = ("agent_state", "client")
"""Parameters that no model fills: the agent's blocks, and Letta's client, which is None here."""

_DICTS = ("dict", "Dict", "typing.Dict")
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTool:
    """The parsed source of a tool.

    Args:
        name: the name of its function.
        source: the text to store, without common indentation.
        parameters: a JSON schema of type object.
        takes_agent: the function has a parameter `agent_state`.
        left_empty: parameters of the function that get None.
    """

    name: str
    source: str
    description: str
    parameters: Mapping[str, Any]
    takes_agent: bool
    left_empty: tuple[str, ...] = ()


def check_tool_name(name: str) -> str:
    """Return the name after checking that models can call a tool by it. Raises: InvalidInput."""
    if not _NAME.fullmatch(name) or len(name) > NAME_MAX_CHARS:
        raise InvalidInput(
            f"tool name {name[:80]!r} can't be used: up to {NAME_MAX_CHARS} letters, digits, _ and -, no spaces,"
            " beginning with a letter or _"
        )
    return name


def parse_source(
    source: str,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    documented: bool = False,
) -> SourceTool:
    """Parse the Python source of a tool. It is never run.

    Args:
        name: the function that is the tool; None: the last public one.
        description: replaces the docstring's.
        parameters: a JSON schema that replaces the signature's. It must fit the signature.
        documented: without `parameters`, each parameter needs a description and may be no `dict[k, v]`, as with Letta.
    Raises: SourceInvalid: with line and reason: it does not parse, has no such function, no docstring, or an annotation
        that can't be read; SchemaMismatch: `parameters` contradicts the signature.
    """
    try:
        source, module = _parse_module(source)
        function = _function(module, name)
        check_tool_name(function.name)
        docs = parse_docs(ast.get_docstring(function))
        description = description or docs.description
        if not description.strip():
            raise SourceInvalid(
                f"function {function.name} has a missing docstring: its first line tells the model what the tool is"
                " for",
                line=function.lineno,
            )
        types, arguments = SourceTypes(module), _arguments(function)
        if parameters is not None:
            properties, required = parameters.get("properties", {}), parameters.get("required", [])
            if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
                raise InvalidInput("json_schema: `properties` must be an object and `required` a list of names")
            for parameter, problem in _mismatches(function, arguments, types, properties, required):
                raise SchemaMismatch(parameter, problem)
            # It is closed, unless the function takes `**kwargs`.
            closed = {} if function.args.kwarg else {"additionalProperties": False}
            parameters = {"type": "object", **parameters, "properties": dict(properties), **closed}
        else:
            parameters = _schema(function, arguments, types, docs.parameters)
            if documented:
                _check_documented(function.name, arguments, parameters["properties"])
    except RecursionError:
        raise SourceInvalid("it is nested too deep to be read") from None
    return SourceTool(
        name=function.name,
        source=source,
        description=description,
        parameters=parameters,
        takes_agent=any(argument.arg == "agent_state" for argument, _ in arguments),
        left_empty=tuple(arg.arg for arg, default in arguments if arg.arg == "client" and default is None),
    )


def needs_agent(source: str, name: str) -> bool:
    """Return whether the function of a Python source needs its parameter `agent_state`."""
    try:
        _, module = _parse_module(source)
        arguments = _arguments(_function(module, name))
    except SourceInvalid:  # running it reports the error
        return False
    return any(argument.arg == "agent_state" and default is None for argument, default in arguments)


def _parse_module(source: str) -> tuple[str, ast.Module]:
    """Return (the source without common indentation, its syntax tree). Raises: SourceInvalid."""
    source = source.removeprefix("\ufeff")  # as editors begin files with
    if not source.strip():
        raise SourceInvalid("the source is empty: write a function with a docstring")
    if len(source) > SOURCE_MAX_CHARS:
        raise SourceInvalid(f"the source has {len(source):,} characters, the limit is {SOURCE_MAX_CHARS:,}")
    if (bad := _UNREADABLE.search(source)) is not None:
        what = "a NUL character" if bad.group() == "\0" else "half of a surrogate pair, which is not a character"
        raise SourceInvalid(f"it has {what}: take it away", line=source.count("\n", 0, bad.start()) + 1)
    last: Exception | None = None
    for text in dict.fromkeys((source, textwrap.dedent(source))):
        try:
            return text, ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            last = error
    if isinstance(last, SyntaxError):
        line = f": `{last.text.strip():.120}`" if last.text and last.text.strip() else ""
        raise SourceInvalid(f"{last.msg}{line}", line=last.lineno)
    why = "it is nested too deep" if isinstance(last, MemoryError | RecursionError) else str(last)
    raise SourceInvalid(f"the source does not parse: {why}")


def _function(module: ast.Module, name: str | None) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Return the top-level function `name`; None: the last public one. Raises: SourceInvalid: there is none."""
    functions = [line for line in module.body if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef)]
    public = [function for function in functions if not function.name.startswith("_")]
    if name is not None:
        for function in reversed(functions):
            if function.name == name:
                return function
        names = ", ".join(dict.fromkeys(function.name for function in public)) or "none"
        raise SourceInvalid(f"the source has no function {name[:80]!r} at its top level; there are: {names}")
    if not public:
        raise SourceInvalid("the source has no public function at its top level: write `def name(...):` there")
    return public[-1]


_Arguments = list[tuple[ast.arg, ast.expr | None]]


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> _Arguments:
    """Return (parameter, default) of the parameters that can be passed by name, in order."""
    arguments = function.args
    if arguments.posonlyargs:
        raise SourceInvalid(
            f"parameter {arguments.posonlyargs[0].arg!r} of {function.name} can't be filled by a model: remove the `/`",
            line=function.lineno,
        )
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + list(arguments.defaults)
    return [*zip(arguments.args, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]


def _schema(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    arguments: _Arguments,
    types: SourceTypes,
    texts: Mapping[str, str],
) -> dict[str, Any]:
    """Return the JSON schema of a function's parameters; `types` reads annotations, `texts`: parameter -> description.
    Raises: SourceInvalid: an annotation is missing or can't be read."""
    for star in (function.args.vararg, function.args.kwarg):
        if star is not None:
            raise SourceInvalid(
                f"parameter *{star.arg} of {function.name} can't be filled by a model: name each one, or give a"
                " json_schema",
                line=star.lineno,
            )
    fields: dict[str, tuple[Any, Any, str | None]] = {}
    line = function.lineno
    try:
        with warnings.catch_warnings(action="ignore"):  # such as pydantic's about names of fields
            for argument, default in arguments:
                if argument.arg in HIDDEN:
                    continue
                line = argument.lineno
                if argument.annotation is None:
                    name = argument.arg
                    problem = f"parameter {name!r} of {function.name} has no annotation, such as `{name}: str`"
                    raise SourceInvalid(problem, line=line)
                annotation = types.type_of(argument.annotation)
                fields[argument.arg] = (annotation, types.default_of(default), texts.get(argument.arg))
            line = function.lineno
            schema = parameters_schema(function.name, fields)
    except (SourceInvalid, RecursionError):
        raise
    except Exception as error:  # pydantic refuses with many kinds, such as TypeError for a constraint that can't hold
        raise SourceInvalid(f"no JSON schema can be made of its signature: {error}", line=line) from error
    # pydantic sorts the keys; clients have always seen them in this order, a description last.
    properties = {
        name: dict(sorted(value.items(), key=lambda item: item[0] == "description"))
        for name, value in schema.get("properties", {}).items()
    }
    rest: dict[str, Any] = {key: schema[key] for key in ("required", "$defs") if key in schema}
    return {"type": "object", "properties": properties, **rest, "additionalProperties": False}


def _check_documented(function: str, arguments: _Arguments, properties: Mapping[str, Any]) -> None:
    """Check that each parameter is described and is no `dict[k, v]`. Raises: SourceInvalid."""
    for argument, _ in arguments:
        if argument.arg not in properties:  # no model fills it
            continue
        if not _mapping(properties[argument.arg]).get("description"):
            raise SourceInvalid(
                f"parameter {argument.arg!r} of {function} is not described: add a line for it under `Args:` of the"
                " docstring",
                line=argument.lineno,
            )
        for part in ast.walk(argument) if argument.annotation is not None else ():
            if isinstance(part, ast.Subscript) and ast.unparse(part.value) in _DICTS:
                raise SourceInvalid(
                    f"parameter {argument.arg!r} of {function}: `{ast.unparse(part):.60}` says nothing of its keys: use"
                    " a pydantic model, a plain dict, or give a json_schema",
                    line=argument.lineno,
                )


def _mismatches(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    arguments: _Arguments,
    types: SourceTypes,
    properties: Mapping[str, Any],
    required: Collection[Any],
) -> Iterator[tuple[str, str]]:
    """Yield (parameter, problem) for each contradiction between a function and the JSON schema given for it, whose
    `properties` and `required` these are; `arguments` are the function's own."""
    own = {
        argument.arg: (argument.annotation, default) for argument, default in arguments if argument.arg not in HIDDEN
    }
    for name in required:
        if name not in properties:
            yield str(name), "the schema requires it and does not describe it"
    for name, schema in properties.items():
        if name in HIDDEN:
            yield name, "it is not filled by the model: leave it out of the schema"
        elif name in own:
            annotation = own[name][0]
            if annotation is not None and (kinds := _contradicting_kinds(schema, annotation, types)):
                yield name, f"the schema says {kinds}, its annotation `{ast.unparse(annotation):.60}`"
        elif function.args.kwarg is None:
            yield name, f"the schema has it, function {function.name} does not; its own are: {', '.join(own) or 'none'}"
    for name in (name for name, (_, default) in own.items() if default is None):
        if name not in properties:
            yield name, f"function {function.name} needs it, and the schema does not have it"
        elif name not in required and "default" not in _mapping(properties[name]):
            yield name, f"function {function.name} needs it, and the schema lets it be left out: require it"


def _contradicting_kinds(schema: Any, annotation: ast.expr, types: SourceTypes) -> str:
    """Return the JSON types of `schema` in words if no value fits it and the annotation; empty: some may."""
    try:
        parsed = parameters_schema("f", {"x": (types.type_of(annotation), ..., None)})
    except Exception:  # it can't be read, or pydantic makes nothing of it
        return ""
    kinds, annotation_kinds = _kinds(_mapping(schema)), _kinds(parsed["properties"]["x"])
    numbers = {"integer", "number"}  # each fits some values of the other
    fits = not kinds.isdisjoint(annotation_kinds) or (kinds & numbers and annotation_kinds & numbers)
    return "" if fits or not kinds or not annotation_kinds else " or ".join(sorted(kinds))


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema allows; empty: any, or unknown."""
    if "$ref" in schema:
        return set()
    if isinstance(branches := schema.get("anyOf") or schema.get("oneOf"), list):
        branch_kinds = [_kinds(_mapping(branch)) for branch in branches]
        return set().union(*branch_kinds) if all(branch_kinds) else set()
    kind = schema.get("type")
    return {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
