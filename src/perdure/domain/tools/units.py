"""Units of work on tools: create from source, change, delete, store the built-in ones, and search by words."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.errors import AlreadyExists, InvalidInput, ToolBuiltIn
from perdure.core.ids import Ids, ToolId
from perdure.core.secrets import Cipher, check_secret
from perdure.core.specs import Tool, ToolCode, ToolFilter, ToolKind, ToolSpec
from perdure.core.text.reprs import describe_value
from perdure.core.text.words import index_words
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS, MEMORY_TOOL_SPECS
from perdure.core.tools.sandbox import check_hosts, is_requirement
from perdure.core.tools.schema import check_schema, plain_schema
from perdure.core.tools.source import SOURCE_MAX_CHARS, check_tool_name, parse_source
from perdure.domain.environment import seal_environment
from perdure.domain.values import as_tags, check_fields, check_item_limits, check_json, check_range
from perdure.storage.tx import Tx

BASE_KINDS: tuple[ToolKind, ...] = ("memory", "builtin", "agents", "helpers", "skills")

RETURN_LIMIT_MAX_CHARS = 1_000_000
TIMEOUT_MAX_S = 3_600.0
MEMORY_MAX_MB = 1_000_000
TEXT_MAX_CHARS = 100_000
LISTED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTool:
    """The values of a new custom tool. None: as in the source, or the default.

    Args:
        source: Python, a module or one function; or TypeScript, which is stored but can't run here.
        name: of the tool; by default the function's.
        function: the function of the source that is the tool; by default the one called `name`, or the last public one.
        schema: a JSON schema of its arguments, in place of the signature's.
        requirements: pip requirements, such as "httpx==0.28.1".
        environment: variable -> value; `secret:NAME` stands for the organisation's secret of that name.
        network: the hosts that it may reach; see `core.tools.hosts`.
        documented: as `core.tools.source.parse_source` has it.
    """

    source: str
    source_type: str = "python"
    name: str | None = None
    function: str | None = None
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
    documented: bool = False


class ToolOptions(TypedDict, total=False):
    """The options of a new tool beside its source; see `docs/tools.md`."""

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
    """The fields of a tool to change. A missing field keeps its value.

    A new `source` also replaces name, description and schema, unless the changes contain them. A `name` that is no
    function of the source renames the tool. A tool without source takes only `tags`, `metadata`, `return_limit_chars`
    and `requires_approval`; other fields raise ToolBuiltIn.
    """

    source: str
    source_type: str
    documented: bool


_USE_FIELDS = frozenset({"tags", "metadata", "return_limit_chars", "requires_approval"})
"""The fields that can change of a tool without source."""

_SPEC_FIELDS = ("return_limit_chars", "requires_approval", "idempotent", "parallel", "timeout_s")
_CODE_FIELDS = ("requirements", "environment", "network", "memory_mb")


def build_tool(new: NewTool, tool_id: ToolId) -> tuple[Tool, ToolCode]:
    """Return a custom tool and its code, not yet stored. Raises: SourceInvalid, SchemaMismatch, InvalidInput."""
    _check_values(new)
    if new.schema is not None:
        check_json("the tool's schema", new.schema)
        new = replace(new, schema=plain_schema(new.schema))
        check_schema(new.schema)
    if new.source_type == "typescript":
        name, description, parameters, code = _typescript(new)
    else:
        function = new.function or new.name
        parsed = parse_source(
            new.source, name=function, description=new.description, parameters=new.schema, documented=new.documented
        )
        name, description, parameters = new.name or parsed.name, parsed.description, parsed.parameters
        code = ToolCode(
            source=parsed.source, function=parsed.name, takes_agent=parsed.takes_agent, left_empty=parsed.left_empty
        )
    check_json("the tool's schema", parameters)
    spec = ToolSpec(
        name=check_tool_name(name),
        description=description,
        parameters=parameters,
        kind="custom",
        tool_type="custom",
        **{one: getattr(new, one) for one in _SPEC_FIELDS},
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
    """Create a tool, or return the existing one with the same name, source and options.

    Args:
        fields: the fields to compare with an existing tool; by default those that differ from the defaults.
    Raises: SourceInvalid, SchemaMismatch, InvalidInput; ToolBuiltIn: the name of a built-in tool; AlreadyExists:
        another source or other options under this name.
    """
    tool, code = build_tool(new, tool_id)
    _check_size(tx, tool)
    before = _find_named(tx, tool.spec.name)
    if before is not None:
        stored = tx.tools.code(before.id)
        if stored is not None and (stored.source, stored.source_type) == (code.source, code.source_type):
            if fields is None:
                usual = NewTool(source=new.source)
                fields = [one for one in ToolChanges.__annotations__ if getattr(new, one) != getattr(usual, one)]
            # Encryption makes equal values differ, so both are compared as they would be stored for this tool.
            stored, code = (
                seal_environment(tx, before.id, one, stored=stored, cipher=cipher) for one in (stored, code)
            )
            stored_options, new_options = _options(before, stored), _options(tool, code)
            if differing := [
                field for field in fields if field in stored_options and stored_options[field] != new_options[field]
            ]:
                raise AlreadyExists("tool", tool.spec.name, differing=differing)
            return before
    return tx.tools.add(tool, code=seal_environment(tx, tool_id, code, stored=None, cipher=cipher), at=at)


def upsert_tool(
    tx: Tx, new: NewTool, tool_id: ToolId, *, cipher: Cipher, at: datetime, fields: Collection[str] | None = None
) -> Tool:
    """Create the tool, or replace in the one of its name these `fields`, None: all. Raises: as `create_tool`;
    AlreadyExists: that tool has no source."""
    tool, code = build_tool(new, tool_id)
    _check_size(tx, tool)
    before = _find_named(tx, tool.spec.name)
    if before is None:
        return tx.tools.add(tool, code=seal_environment(tx, tool_id, code, stored=None, cipher=cipher), at=at)
    if before.spec.kind != "custom":
        raise AlreadyExists("tool", tool.spec.name)
    if fields is not None:
        changes: Any = {"source_type": new.source_type} | {field: getattr(new, field) for field in fields}
        return update_tool(tx, before.id, changes, cipher=cipher, at=at)
    code = seal_environment(tx, before.id, code, stored=tx.tools.code(before.id), cipher=cipher)
    return tx.tools.update(replace(tool, id=before.id), code=code, at=at)


def seal_environments(tx: Tx, tool_ids: Sequence[ToolId], *, cipher: Cipher, at: datetime) -> None:
    """Encrypt the variables of tools that an older version stored in plain text. Raises: SecretKeyMissing."""
    for tool_id in tx.tools.codes(tool_ids):
        tool, code = tx.tools.get(tool_id), tx.tools.code(tool_id)
        if code is not None and not code.is_sealed:
            sealed = seal_environment(tx, tool_id, code, stored=None, cipher=cipher)
            tx.tools.update(tool, code=sealed, at=at)


def unsealed_tools(tx: Tx, *, limit: int) -> Sequence[ToolId]:
    """Return up to `limit` tools whose variables an older version stored in plain text."""
    ids: list[ToolId] = []
    last: ToolId | None = None
    while len(ids) < limit:
        page = tx.tools.page(where=ToolFilter(types=("custom",)), limit=limit, after=last)
        if not page:
            break
        codes = tx.tools.codes([tool.id for tool in page])
        ids += [tool_id for tool_id, code in codes.items() if not code.is_sealed]
        last = page[-1].id
    return ids[:limit]


def update_tool(tx: Tx, tool_id: ToolId, changes: ToolChanges, *, cipher: Cipher, at: datetime) -> Tool:
    """Change a tool and return it. Raises: NotFound, SourceInvalid, SchemaMismatch; InvalidInput: an invalid value or
    field; ToolBuiltIn: a field that can't change without a source; AlreadyExists: another tool has the name."""
    check_fields("a tool", changes, ToolChanges.__annotations__)
    before, code = tx.tools.get(tool_id), tx.tools.code(tool_id)
    if code is None:
        if fixed := [name for name in changes if name not in _USE_FIELDS]:
            helps = f"{', '.join(fixed)} can't be changed; {', '.join(sorted(_USE_FIELDS))} can"
            raise ToolBuiltIn(before.spec.name, helps=helps)
        tool = _change_use(before, changes)
        _check_size(tx, tool)
        return tx.tools.update(tool, at=at)
    stored = code
    tool, code = build_tool(_apply_changes(before, code, changes), tool_id)
    code = seal_environment(tx, tool_id, code, stored=stored, cipher=cipher)
    _check_size(tx, tool)
    other = _find_named(tx, tool.spec.name)
    if other is not None and other.id != tool_id:
        raise AlreadyExists("tool", tool.spec.name)
    return tx.tools.update(tool, code=code, at=at)


def delete_tool(tx: Tx, tool_id: ToolId) -> None:
    """Delete a tool and detach it from all agents. Raises: NotFound; ToolBuiltIn."""
    tool = tx.tools.get(tool_id)
    if tool.spec.kind in BASE_KINDS:
        raise ToolBuiltIn(tool.spec.name, helps="it can't be deleted; detach it from the agents that shall not have it")
    tx.tools.delete(tool_id)


def current_tools(stored: Mapping[str, Tool], specs: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return those of `specs`, of built-in tools and the program's functions, that differ from `stored`: name -> tool.

    A user's options of a built-in tool stay. A built-in tool with the name of a user's tool is skipped.
    Raises: AlreadyExists: a function has the name of a user's tool; ToolBuiltIn: of a built-in one.
    """
    base = {spec.name for spec in specs if spec.kind in BASE_KINDS} | set(CONTEXT_TOOL_SPECS)
    changed: list[ToolSpec] = []
    for spec in specs:
        before = stored.get(spec.name)
        of_base = before is not None and before.spec.kind in BASE_KINDS
        if spec.kind not in BASE_KINDS and (of_base or spec.name in base):
            raise ToolBuiltIn(spec.name, helps="give the function another name")
        if before is not None and before.spec.kind not in (*BASE_KINDS, "function"):
            if spec.kind in BASE_KINDS:
                continue
            raise AlreadyExists("tool", spec.name)
        if before is not None and {before.spec.kind, spec.kind} <= set(BASE_KINDS):
            spec = replace(
                spec, return_limit_chars=before.spec.return_limit_chars, requires_approval=before.spec.requires_approval
            )
        if before is None or before.spec != spec:
            changed.append(spec)
    return changed


def put_tools(tx: Tx, specs: Sequence[ToolSpec], *, ids: Ids, at: datetime) -> None:
    """Store the current specs of built-in tools and of the program's functions. Raises: as `current_tools`."""
    stored = tx.tools.find_named([spec.name for spec in specs])
    for spec in current_tools(stored, specs):
        before = stored.get(spec.name)
        tool = Tool(id=ToolId(ids.new("tool")), spec=spec) if before is None else replace(before, spec=spec)
        tx.tools.put(tool, at=at)


def _find_named(tx: Tx, name: str) -> Tool | None:
    """Return the custom tool or function with this name; None: there is none. Raises: ToolBuiltIn: it is built in."""
    before = tx.tools.find_by_name(name)
    built_in = before is not None and before.spec.kind in BASE_KINDS
    if built_in or name in CONTEXT_TOOL_SPECS or name in MEMORY_TOOL_SPECS:
        raise ToolBuiltIn(name, helps="choose another name")
    return before


def _apply_changes(before: Tool, code: ToolCode, changes: ToolChanges) -> NewTool:
    """Return the values of a stored tool with the changes, from which the tool is built again."""
    values: dict[str, Any] = {name: getattr(before.spec, name) for name in _SPEC_FIELDS}
    values |= {name: getattr(code, name) for name in _CODE_FIELDS}
    values["environment"] = code.visible_environment
    values |= {"tags": before.tags, "metadata": before.metadata, "source": code.source, "source_type": code.source_type}
    name, source = changes.get("name"), changes.get("source", code.source)
    if "source" not in changes:
        values |= {"name": before.spec.name, "description": before.spec.description, "schema": before.spec.parameters}
    if (name is None or not _defines(source, name)) and _defines(source, code.function):
        values["function"] = code.function
    return NewTool(**{**values, **changes})


def _options(tool: Tool, code: ToolCode) -> dict[str, str]:
    """Return option of a tool -> its value as JSON, for comparisons."""
    options: dict[str, Any] = {one: getattr(tool.spec, one) for one in _SPEC_FIELDS}
    options |= {one: getattr(code, one) for one in _CODE_FIELDS}
    options["environment"] = [code.environment, code.sealed]
    options |= {"description": tool.spec.description, "schema": tool.spec.parameters}
    options |= {"tags": tool.tags, "metadata": tool.metadata}
    return {name: json.dumps(one, sort_keys=True, default=dict) for name, one in options.items()}


def _defines(source: Any, function: Any) -> bool:
    """Return whether a Python source seems to define a top-level function of this name."""
    texts = isinstance(source, str) and isinstance(function, str)
    return texts and bool(re.search(rf"^(async\s+)?def\s+{re.escape(function)}\b", source, re.M))


def _change_use(before: Tool, changes: ToolChanges) -> Tool:
    """Return a tool without source with the changes, which name only `_USE_FIELDS`. Raises: InvalidInput."""
    limit, approval = changes.get("return_limit_chars"), changes.get("requires_approval")
    new = NewTool(
        source="",
        tags=changes.get("tags", before.tags),
        metadata=changes.get("metadata", before.metadata),
        return_limit_chars=before.spec.return_limit_chars if limit is None else limit,
        requires_approval=before.spec.requires_approval if approval is None else approval,
    )
    _check_values(new)
    spec = replace(before.spec, return_limit_chars=new.return_limit_chars, requires_approval=new.requires_approval)
    return replace(before, spec=spec, tags=as_tags(new.tags), metadata=new.metadata)


def _typescript(new: NewTool) -> tuple[str, str, Mapping[str, Any], ToolCode]:
    """Return (name, description, parameters, code) of a TypeScript tool. Raises: InvalidInput."""
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
    """Check the size of a tool. Raises: TooMany."""
    spec = tool.spec
    check_item_limits(
        tx.limits, tags=tool.tags, description=spec.description, metadata=tool.metadata, schema=spec.parameters
    )


def _check_values(new: NewTool) -> None:
    """Check the type, size and form of each value of a new tool. Raises: InvalidInput."""
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
            raise InvalidInput(f"{what} is {describe_value(value)}: give a {_KINDS[kind]}")
    if new.source_type not in ("python", "typescript"):
        raise InvalidInput(f"source_type is {describe_value(new.source_type)}: use 'python' or 'typescript'")
    if new.description is not None and len(new.description) > TEXT_MAX_CHARS:
        raise InvalidInput(f"description has {len(new.description):,} characters, the limit is {TEXT_MAX_CHARS:,}")
    as_tags(new.tags)
    check_json("metadata", new.metadata)
    check_range("return_limit_chars", new.return_limit_chars, 1, RETURN_LIMIT_MAX_CHARS)
    if new.timeout_s is not None:
        check_range("timeout_s", new.timeout_s, 0.001, TIMEOUT_MAX_S, whole=False)
    if new.memory_mb is not None:
        check_range("memory_mb", new.memory_mb, 16, MEMORY_MAX_MB)
    if isinstance(new.requirements, str) or not isinstance(new.requirements, Sequence):
        raise InvalidInput(
            f"requirements is {describe_value(new.requirements)}: give a list of texts, such as ['httpx==0.28.1']"
        )
    if max(len(new.requirements), len(new.environment)) > LISTED_MAX:
        raise InvalidInput(f"a tool has at most {LISTED_MAX} requirements and {LISTED_MAX} variables")
    for requirement in new.requirements:
        if not isinstance(requirement, str) or not is_requirement(requirement):
            raise InvalidInput(
                f"requirement {describe_value(requirement)} can't be used: write 'name' or 'name==1.2', no address"
            )
    for name, value in new.environment.items():
        check_secret(name, value)


_KINDS: Mapping[type, str] = {str: "text", bool: "true or false", Mapping: "mapping"}


LOOKED_AT = 2_000
"""How many of the newest tools are searched."""

NAME_WEIGHT, TAG_WEIGHT = 3.0, 2.0
"""How much more a word counts in a tool's name and tags than in its description."""


@dataclass(frozen=True, slots=True)
class ToolHit:
    """A tool and its score: higher is better, no unit."""

    tool: Tool
    score: float


def search_tools(tx: Tx, query: str, *, where: ToolFilter, limit: int) -> Sequence[ToolHit]:
    """Return the best tools first; for a query without words the newest, with a score of 0.

    Source: sum of inverse document frequencies, after Robertson and Sparck Jones, 1976; words as in every search here.
    """
    tools = tx.tools.page(where=where, limit=LOOKED_AT)
    words = set(index_words(query).split())
    if not words:
        return [ToolHit(tool, 0.0) for tool in tools[:limit]]
    matches = [(tool, _weights(tool, words)) for tool in tools]
    counts = Counter(word for _, weights in matches for word in weights)
    rare = {word: math.log(1 + len(tools) / count) for word, count in counts.items()}
    hits = [ToolHit(tool, sum(rare[word] * weight for word, weight in weights.items())) for tool, weights in matches]
    return sorted((hit for hit in hits if hit.score > 0), key=lambda hit: -hit.score)[:limit]


def text_of_tool(tool: Tool) -> str:
    """Return the searched text of a tool."""
    return "\n".join(filter(None, (tool.spec.name, " ".join(tool.tags), tool.spec.description)))


def _weights(tool: Tool, words: set[str]) -> dict[str, float]:
    """Return word -> weight of those words of a query that a tool has; the weight says where it has them."""
    weights: dict[str, float] = {}
    name = tool.spec.name
    fields: Iterable[tuple[str, float]] = (
        (tool.spec.description, 1.0),
        (" ".join(tool.tags), TAG_WEIGHT),
        (f"{name} {name.replace('_', ' ').replace('-', ' ')}", NAME_WEIGHT),
    )
    for text, weight in fields:
        weights |= dict.fromkeys(words.intersection(index_words(text).split()), weight)
    return weights
