"""Tools as objects: made of a source, changed, removed; and those that are built in, kept as they are now."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.errors import AlreadyExists, InvalidInput, ToolBuiltIn
from perdure.core.ids import ToolId
from perdure.core.ports import Ids
from perdure.core.secrets import Cipher, check_secret
from perdure.core.tools.environment import is_sealed, shown_environment
from perdure.core.tools.hosts import check_hosts
from perdure.core.tools.sandbox import is_requirement
from perdure.core.tools.schema_check import check_schema
from perdure.core.tools.source import NAME_MAX_CHARS, SOURCE_MAX_CHARS, check_tool_name, read_source
from perdure.core.tools.spec import Tool, ToolCode, ToolFilter, ToolKind, ToolSpec
from perdure.domain.tools.environment import seal_environment
from perdure.domain.tools.specs import CONTEXT_TOOL_SPECS, MEMORY_TOOL_SPECS
from perdure.domain.values import as_tags, check_json, check_kept, shown
from perdure.storage.tx import Tx

__all__ = [
    "NAME_MAX_CHARS",
    "NewTool",
    "ToolChanges",
    "ToolOptions",
    "build_tool",
    "create_tool",
    "current_tools",
    "delete_tool",
    "put_tools",
    "seal_environments",
    "unsealed_tools",
    "update_tool",
    "upsert_tool",
]

BASE_KINDS: tuple[ToolKind, ...] = ("memory", "builtin")

RETURN_LIMIT_MAX_CHARS = 1_000_000
TIMEOUT_MAX_S = 3_600.0
MEMORY_MAX_MB = 1_000_000
TEXT_MAX_CHARS = 100_000
LISTED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTool:
    """What a custom tool is made of. None: as the source says, or the usual.

    Args:
        source: Python, a whole module or a function alone; or TypeScript, which is kept but can't be run here.
        name: of the function in the source that is the tool; the last public one if left out.
        schema: a JSON schema of its arguments, in place of the one that the signature says.
        requirements: of pip, such as "httpx==0.28.1".
        environment: variable -> value; `secret:NAME` stands for the organisation's secret of that name.
        network: the hosts that it may reach, as `core.tools.hosts` has them.
    """

    source: str
    source_type: str = "python"
    name: str | None = None
    description: str | None = None
    schema: Mapping[str, Any] | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    return_limit_chars: int = 50_000
    requires_approval: bool = False
    idempotent: bool = False
    parallel: bool = False
    timeout_s: float | None = None
    requirements: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    network: Sequence[str] = ()
    memory_mb: int | None = None


class ToolOptions(TypedDict, total=False):
    """What can be said of a new tool, beside its source; see `docs/tools.md`."""

    name: str
    description: str
    schema: Mapping[str, Any]
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    return_limit_chars: int
    requires_approval: bool
    idempotent: bool
    parallel: bool
    timeout_s: float | None
    requirements: Sequence[str]
    environment: Mapping[str, str]
    network: Sequence[str]
    memory_mb: int | None


class ToolChanges(ToolOptions, total=False):
    """What may be changed of a tool. What is not given stays. A new source says name, description and schema anew,
    unless they are given with it. Of tools that are not custom only those that concern their use can be changed."""

    source: str
    source_type: str


_OF_USE = frozenset({"tags", "metadata", "return_limit_chars", "requires_approval"})
"""What can be changed of a tool that is not made of a source."""

_OF_SPEC = ("return_limit_chars", "requires_approval", "idempotent", "parallel", "timeout_s")
_OF_CODE = ("requirements", "environment", "network", "memory_mb")


def build_tool(new: NewTool, tool_id: ToolId) -> tuple[Tool, ToolCode]:
    """The tool that a source makes. Raises: SourceInvalid, SchemaMismatch, InvalidInput: a field that can't be used."""
    _check(new)
    if new.schema is not None:
        check_json("the tool's schema", new.schema)
        check_schema(new.schema)
    if new.source_type == "typescript":
        name, description, parameters, code = _typescript(new)
    else:
        read = read_source(new.source, name=new.name, description=new.description, parameters=new.schema)
        name, description, parameters = read.name, read.description, read.parameters
        code = ToolCode(
            source=read.source, function=read.function, takes_agent=read.takes_agent, left_empty=read.left_empty
        )
    check_json("the tool's schema", parameters)
    spec = ToolSpec(
        name=check_tool_name(name),
        description=description,
        parameters=parameters,
        kind="custom",
        tool_type="custom",
        **{one: getattr(new, one) for one in _OF_SPEC},
    )
    code = replace(
        code,
        requirements=tuple(requirement.strip() for requirement in new.requirements),
        environment=dict(new.environment),
        network=check_hosts(new.network),
        memory_mb=new.memory_mb,
    )
    return Tool(id=tool_id, spec=spec, tags=as_tags(new.tags), metadata=new.metadata), code


def create_tool(
    tx: Tx, new: NewTool, tool_id: ToolId, *, cipher: Cipher, at: datetime, fields: Collection[str] | None = None
) -> Tool:
    """The new tool; the one that is there, if its name, source and `fields` are the same.

    Args:
        fields: names of fields that must be equal; by default those without the usual value.
    Raises: SourceInvalid, SchemaMismatch, InvalidInput; ToolBuiltIn: its name is one of Perdure's own;
        AlreadyExists: another tool has its name; or it is the same one with other options.
    """
    tool, code = build_tool(new, tool_id)
    _check_size(tx, tool)
    before = _named(tx, tool.spec.name)
    if before is not None:
        kept = tx.tools.code(before.id)
        if kept is not None and (kept.source, kept.source_type) == (code.source, code.source_type):
            if fields is None:
                usual = NewTool(source=new.source)
                fields = [one for one in ToolChanges.__annotations__ if getattr(new, one) != getattr(usual, one)]
            # Encrypted, equal values differ; so both are compared as they would be stored of this tool.
            kept, code = (seal_environment(tx, before.id, one, kept=kept, cipher=cipher) for one in (kept, code))
            there, wanted = _options(before, kept), _options(tool, code)
            if differing := [one for one in fields if one in there and there[one] != wanted[one]]:
                raise AlreadyExists("tool", tool.spec.name, differing=differing)
            return before
    return tx.tools.add(tool, code=seal_environment(tx, tool_id, code, kept=None, cipher=cipher), at=at)


def upsert_tool(tx: Tx, new: NewTool, tool_id: ToolId, *, cipher: Cipher, at: datetime) -> Tool:
    """The tool of this name, made or changed to what is given. Raises: as `create_tool`, and AlreadyExists if the name
    is that of a tool which is made of no source."""
    tool, code = build_tool(new, tool_id)
    _check_size(tx, tool)
    before = _named(tx, tool.spec.name)
    if before is None:
        return tx.tools.add(tool, code=seal_environment(tx, tool_id, code, kept=None, cipher=cipher), at=at)
    if before.spec.kind != "custom":
        raise AlreadyExists("tool", tool.spec.name)
    code = seal_environment(tx, before.id, code, kept=tx.tools.code(before.id), cipher=cipher)
    return tx.tools.update(replace(tool, id=before.id), code=code, at=at)


def seal_environments(tx: Tx, tool_ids: Sequence[ToolId], *, cipher: Cipher, at: datetime) -> None:
    """Encrypt the variables of tools that an older version stored as they are. Raises: SecretKeyMissing."""
    for tool_id, code in tx.tools.codes(tool_ids).items():
        if not is_sealed(code):
            sealed = seal_environment(tx, tool_id, code, kept=None, cipher=cipher)
            tx.tools.update(tx.tools.get(tool_id), code=sealed, at=at)


def unsealed_tools(tx: Tx, *, limit: int) -> Sequence[ToolId]:
    """Tools whose variables an older version stored as they are."""
    found: list[ToolId] = []
    last: ToolId | None = None
    while len(found) < limit:
        page = tx.tools.page(where=ToolFilter(types=("custom",)), limit=limit, after=last)
        if not page:
            break
        codes = tx.tools.codes([tool.id for tool in page])
        found += [tool_id for tool_id, code in codes.items() if not is_sealed(code)]
        last = page[-1].id
    return found[:limit]


def update_tool(tx: Tx, tool_id: ToolId, changes: ToolChanges, *, cipher: Cipher, at: datetime) -> Tool:
    """The tool as changed; as it was when nothing changes.

    Raises: NotFound, SourceInvalid, SchemaMismatch; InvalidInput: a value that can't be used, no such field;
        ToolBuiltIn: that can't be changed of a tool which is made of no source; AlreadyExists: another has the name.
    """
    if unknown := [name for name in changes if name not in ToolChanges.__annotations__]:
        there = ", ".join(ToolChanges.__annotations__)
        raise InvalidInput(f"a tool has no field {', '.join(unknown)} to change: there are {there}")
    before, code = tx.tools.get(tool_id), tx.tools.code(tool_id)
    if code is None:
        if refused := [name for name in changes if name not in _OF_USE]:
            helps = f"{', '.join(refused)} can't be changed; {', '.join(sorted(_OF_USE))} can"
            raise ToolBuiltIn(before.spec.name, helps=helps)
        tool = _of_use(before, changes)
        _check_size(tx, tool)
        return tx.tools.update(tool, at=at)
    kept = code
    tool, code = build_tool(_changed(before, code, changes), tool_id)
    code = seal_environment(tx, tool_id, code, kept=kept, cipher=cipher)
    _check_size(tx, tool)
    named = _named(tx, tool.spec.name)
    if named is not None and named.id != tool_id:
        raise AlreadyExists("tool", tool.spec.name)
    return tx.tools.update(tool, code=code, at=at)


def delete_tool(tx: Tx, tool_id: ToolId) -> None:
    """Take it from all agents and remove it. Raises: NotFound; ToolBuiltIn."""
    tool = tx.tools.get(tool_id)
    if tool.spec.kind in BASE_KINDS:
        raise ToolBuiltIn(tool.spec.name, helps="it can't be deleted; detach it from the agents that shall not have it")
    tx.tools.delete(tool_id)


def current_tools(stored: Mapping[str, Tool], specs: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Which of these specs, of tools that are built in or the program's functions, have to be stored, and how.

    What a user set of a built-in tool stays; a built-in tool whose name a user's tool has is left out.
    Raises: AlreadyExists: a function has the name of a user's tool; ToolBuiltIn: of a built-in one.
    """
    base = {spec.name for spec in specs if spec.kind in BASE_KINDS} | set(CONTEXT_TOOL_SPECS)
    wanted: list[ToolSpec] = []
    for spec in specs:
        before = stored.get(spec.name)
        if spec.kind not in BASE_KINDS and spec.name in base:
            raise ToolBuiltIn(spec.name, helps="give the function another name")
        if before is not None and before.spec.kind not in (*BASE_KINDS, "function"):
            if spec.kind in BASE_KINDS:
                continue
            raise AlreadyExists("tool", spec.name)
        if before is not None and {before.spec.kind, spec.kind} <= set(BASE_KINDS):
            spec = replace(
                spec,
                return_limit_chars=before.spec.return_limit_chars,
                requires_approval=before.spec.requires_approval,
            )
        if before is None or before.spec != spec:
            wanted.append(spec)
    return wanted


def put_tools(tx: Tx, specs: Sequence[ToolSpec], *, ids: Ids, at: datetime) -> None:
    """Have these tools, built in or the program's functions, stored as they are now. Raises: as `current_tools`."""
    stored = {spec.name: tool for spec in specs if (tool := tx.tools.find_by_name(spec.name)) is not None}
    for spec in current_tools(stored, specs):
        before = stored.get(spec.name)
        tool = Tool(id=ToolId(ids.new("tool")), spec=spec) if before is None else replace(before, spec=spec)
        tx.tools.put(tool, at=at)


def _named(tx: Tx, name: str) -> Tool | None:
    """The tool that has a name. Raises: ToolBuiltIn."""
    before = tx.tools.find_by_name(name)
    built_in = before is not None and before.spec.kind in BASE_KINDS
    if built_in or name in CONTEXT_TOOL_SPECS or name in MEMORY_TOOL_SPECS:
        raise ToolBuiltIn(name, helps="choose another name")
    return before


def _changed(before: Tool, code: ToolCode, changes: ToolChanges) -> NewTool:
    """What the tool would be made of, were it made anew as it is to be."""
    kept: dict[str, Any] = {name: getattr(before.spec, name) for name in _OF_SPEC}
    kept |= {name: getattr(code, name) for name in _OF_CODE}
    kept["environment"] = shown_environment(code)
    kept |= {"tags": before.tags, "metadata": before.metadata, "source": code.source, "source_type": code.source_type}
    if "source" not in changes:
        kept |= {"name": code.function, "description": before.spec.description, "schema": before.spec.parameters}
    elif "name" not in changes and _defines(changes["source"], code.function):
        kept["name"] = code.function
    return NewTool(**{**kept, **changes})


def _options(tool: Tool, code: ToolCode) -> dict[str, str]:
    """What can be said of a tool beside its source, each in a form that can be compared."""
    options: dict[str, Any] = {one: getattr(tool.spec, one) for one in _OF_SPEC}
    options |= {one: getattr(code, one) for one in _OF_CODE}
    options["environment"] = [code.environment, code.sealed]
    options |= {"description": tool.spec.description, "schema": tool.spec.parameters}
    options |= {"tags": tool.tags, "metadata": tool.metadata}
    return {name: json.dumps(one, sort_keys=True, default=dict) for name, one in options.items()}


def _defines(source: Any, function: str) -> bool:
    return isinstance(source, str) and bool(re.search(rf"^(async\s+)?def\s+{re.escape(function)}\b", source, re.M))


def _of_use(before: Tool, changes: ToolChanges) -> Tool:
    limit, approval = changes.get("return_limit_chars"), changes.get("requires_approval")
    new = NewTool(
        source="",
        tags=changes.get("tags", before.tags),
        metadata=changes.get("metadata", before.metadata),
        return_limit_chars=before.spec.return_limit_chars if limit is None else limit,
        requires_approval=before.spec.requires_approval if approval is None else approval,
    )
    _check(new)
    spec = replace(before.spec, return_limit_chars=new.return_limit_chars, requires_approval=new.requires_approval)
    return replace(before, spec=spec, tags=as_tags(new.tags), metadata=new.metadata)


def _typescript(new: NewTool) -> tuple[str, str, Mapping[str, Any], ToolCode]:
    if new.schema is None or not new.name:
        raise InvalidInput("a tool in TypeScript needs a json_schema with its name, description and parameters")
    if not new.description:
        raise InvalidInput(f"tool {new.name[:80]!r} has no description: it tells the model what the tool is for")
    if len(new.source) > SOURCE_MAX_CHARS:
        raise InvalidInput(f"the source has {len(new.source):,} characters, the limit is {SOURCE_MAX_CHARS:,}")
    parameters = {"type": "object", "properties": {}, **new.schema}
    return (
        new.name,
        new.description,
        parameters,
        ToolCode(source=new.source, function=new.name, source_type="typescript"),
    )


def _check_size(tx: Tx, tool: Tool) -> None:
    check_kept(tx.limits, tags=tool.tags, metadata=tool.metadata, schema=tool.spec.parameters)


def _check(new: NewTool) -> None:
    """Raises: InvalidInput."""
    for what, value, kind in (
        ("source", new.source, str),
        ("name", new.name, str),
        ("description", new.description, str),
        ("schema", new.schema, Mapping),
        ("requires_approval", new.requires_approval, bool),
        ("idempotent", new.idempotent, bool),
        ("parallel", new.parallel, bool),
        ("environment", new.environment, Mapping),
    ):
        if not isinstance(value, kind) and not (value is None and what in ("name", "description", "schema")):
            raise InvalidInput(f"{what} is {shown(value)}: give a {_KINDS[kind]}")
    if new.source_type not in ("python", "typescript"):
        raise InvalidInput(f"source_type is {shown(new.source_type)}: use 'python' or 'typescript'")
    if new.description is not None and len(new.description) > TEXT_MAX_CHARS:
        raise InvalidInput(f"description has {len(new.description):,} characters, the limit is {TEXT_MAX_CHARS:,}")
    as_tags(new.tags)
    check_json("metadata", new.metadata)
    _check_number("return_limit_chars", new.return_limit_chars, 1, RETURN_LIMIT_MAX_CHARS, whole=True)
    if new.timeout_s is not None:
        _check_number("timeout_s", new.timeout_s, 0.001, TIMEOUT_MAX_S, whole=False)
    if new.memory_mb is not None:
        _check_number("memory_mb", new.memory_mb, 16, MEMORY_MAX_MB, whole=True)
    if isinstance(new.requirements, str) or not isinstance(new.requirements, Sequence):
        raise InvalidInput(
            f"requirements is {shown(new.requirements)}: give a list of texts, such as ['httpx==0.28.1']"
        )
    if max(len(new.requirements), len(new.environment)) > LISTED_MAX:
        raise InvalidInput(f"a tool has at most {LISTED_MAX} requirements and {LISTED_MAX} variables")
    for requirement in new.requirements:
        if not isinstance(requirement, str) or not is_requirement(requirement):
            raise InvalidInput(
                f"requirement {shown(requirement)} can't be used: write 'name' or 'name==1.2', no address"
            )
    for name, value in new.environment.items():
        check_secret(name, value)


def _check_number(what: str, value: Any, least: float, most: float, *, whole: bool) -> None:
    kind = int if whole else int | float
    if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= most:
        number = "whole number" if whole else "number"
        raise InvalidInput(f"{what} is {shown(value)}: give a {number} from {least:,} to {most:,}")


_KINDS: Mapping[type, str] = {str: "text", bool: "true or false", Mapping: "mapping"}
