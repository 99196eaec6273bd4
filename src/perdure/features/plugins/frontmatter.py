"""The frontmatter of a Markdown file: YAML between two lines `---`, as Claude Code and others write it.

Their files are not always YAML: `description: Use this when: ...` has a colon too many, and `argument-hint: [file]` is
a list. Both are read as the text that their writer meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import yaml

from perdure.core.text.tables import read_table

FRONTMATTER_BYTES = 64_000
DEPTH_MAX = 10
"""How deep lists and objects in the frontmatter may be nested."""
FIELDS_MAX = 100

NAMES_MAX = 200
"""The most names in a list, such as that of tools."""
NAME_CHARS = 200
"""The most characters of one."""

FieldType = Literal["text", "names", "servers", "whole", "number", "flag"]
FIELD_TYPES: Mapping[str, FieldType] = read_table(__file__)
"""Known field -> its type: `text` is a str; `names` a tuple of them, from a list or a text with commas; `servers` the
same, from objects by name too; `whole` an int and `number` a float, both above 0; `flag` a bool."""

FIELDS_OF: Mapping[str, Set[str]] = {
    "agents": FIELD_TYPES.keys() - {"argument_hint", "allowed_tools", "disable_model_invocation", "protected"},
    "commands": FIELD_TYPES.keys()
    - {"color", "memory", "tools", "skills", "mcp_servers", "max_turns", "max_cost_usd", "project_notes", "protected"},
    "skills": FIELD_TYPES.keys(),
}
"""Kind of definitions -> the known fields that have a meaning there."""

_TEXT = "tag:yaml.org,2002:str"
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLAIN_FIELD = re.compile(r"([A-Za-z][\w-]*):[ \t]+(\S.*)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ITEM = re.compile(r"(?:[^,()]|\([^()]*\)|[()])+")
"""A name in a list: a comma within brackets belongs to it."""


class FrontmatterInvalid(ValueError):
    """A frontmatter can't be used. `line` is that of the file, from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line, self.why = line, why


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontmatter:
    """`fields`: the values by keys in snake_case; `lines`: the line of each in the file; `body`: what follows."""

    fields: Mapping[str, Any]
    lines: Mapping[str, int]
    body: str


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C one is ten times as fast
    """A safe loader that keeps dates as texts."""

    yaml_implicit_resolvers: ClassVar = {
        first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parse_frontmatter(text: str) -> Frontmatter:
    """Return the frontmatter and the body of a Markdown text; a text that has none is all body.

    Raises: FrontmatterInvalid: it does not end, is larger than 64 kB, no object of YAML, or a known field has another
        type. Anchors, aliases and tags are refused.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return Frontmatter(fields={}, lines={}, body=text.strip())
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == "---"), None)
    if end is None:
        raise FrontmatterInvalid(1, "the frontmatter has no end: a line `---` is missing")
    source = lines[1:end]
    if len("\n".join(source).encode("utf-8", "replace")) > FRONTMATTER_BYTES:
        raise FrontmatterInvalid(1, f"the frontmatter is larger than {FRONTMATTER_BYTES:,} bytes")
    for number, line in enumerate(source, start=2):
        if _CONTROL.search(line):
            raise FrontmatterInvalid(number, "there is a control character, which no frontmatter has")
    try:
        fields, field_lines = _load(source)
    except FrontmatterInvalid as error:
        if (mended := _quote_plain(source)) == source:
            raise
        try:
            fields, field_lines = _load(mended)
        except FrontmatterInvalid:
            raise error from None
    return Frontmatter(fields=fields, lines=field_lines, body="\n".join(lines[end + 1 :]).strip())


def _load(source: Sequence[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return (key -> value, key -> line in the file) of a frontmatter's lines. Raises: FrontmatterInvalid."""
    text = "\n".join(source) + "\n"
    try:
        _check_events(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return {}, {}
            if not isinstance(node, yaml.MappingNode):
                raise FrontmatterInvalid(2, "the frontmatter is not a list of fields `name: value`")
            return _read_fields(loader, node, source)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FrontmatterInvalid(mark.line + 2 if mark else 1, f"no YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, FrontmatterInvalid):
            raise
        raise FrontmatterInvalid(1, f"no YAML: {' '.join(str(error).split())[:200]}") from error


def _check_events(text: str) -> None:
    """Check for what makes a small text large or deep. Raises: FrontmatterInvalid, yaml.YAMLError."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 2
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise FrontmatterInvalid(
                line, "anchors (`&`) and aliases (`*`) are not allowed: write the value, or quote it"
            )
        if getattr(event, "tag", None) and not isinstance(event, yaml.DocumentStartEvent):
            raise FrontmatterInvalid(line, f"the tag {event.tag!r:.60} is not allowed: quote the value")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise FrontmatterInvalid(line, f"the frontmatter is nested more than {DEPTH_MAX} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _read_fields(loader: Any, node: yaml.MappingNode, source: Sequence[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return (key -> value, key -> line in the file) of the outer object. Raises: FrontmatterInvalid, YAMLError."""
    fields: dict[str, Any] = {}
    lines: dict[str, int] = {}
    if len(node.value) > FIELDS_MAX:
        raise FrontmatterInvalid(2, f"the frontmatter has {len(node.value)} fields, the limit is {FIELDS_MAX}")
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 2
        if not isinstance(key_node, yaml.ScalarNode):
            raise FrontmatterInvalid(line, "the name of a field is not text")
        key = snake_case(key_node.value)
        if key in fields:
            raise FrontmatterInvalid(line, f"the field {key!r:.60} is there twice")
        if FIELD_TYPES.get(key) == "text":
            value = _text_of(value_node, source)
        else:
            value = loader.construct_object(value_node, deep=True)
        fields[key], lines[key] = _convert_value(key, value, line), line
    return {key: value for key, value in fields.items() if value is not None}, lines


def _text_of(node: yaml.Node, source: Sequence[str]) -> Any:
    """The text of a field, as it is written: `[file]` is no list, `1.0` no number. None: it is empty."""
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag.endswith(":null") else node.value
    start, end = node.start_mark, node.end_mark
    return source[start.line][start.column : end.column] if start.line == end.line else list(node.value)


def _convert_value(key: str, value: Any, line: int) -> Any:
    """The value of a field in its type; None: it is empty. Raises: FrontmatterInvalid: it has another type."""
    kind = FIELD_TYPES.get(key)
    if value is None or kind is None:
        return value
    if kind == "text" and isinstance(value, str):
        if _CONTROL.search(value):
            raise FrontmatterInvalid(line, f"{key} has a control character")
        return value.strip()
    if kind == "servers" and not isinstance(
        value, str
    ):  # an object defines one in its place, which is not started: one of its name is needed
        items = value if isinstance(value, list | tuple) else [value]
        value = [name for one in items for name in (one if isinstance(one, Mapping) else [one])]
    if kind in ("names", "servers"):
        items = _ITEM.findall(value) if isinstance(value, str) else value
        if isinstance(items, list | tuple) and all(isinstance(one, str) for one in items):
            return _checked_names(key, [name for item in items if (name := item.strip())], line)
    if kind == "flag" and isinstance(value, bool):
        return value
    if kind == "whole" and type(value) is int and 0 < value < 1e6:
        return value
    if kind == "number" and type(value) in (int, float) and 0 < value < 1e12:
        return float(value)
    needed = {
        "text": "one text",
        "names": "names with commas between them, or a list of names",
        "servers": "names with commas between them, or a list of names",
        "whole": "a whole number from 1 to 999,999",
        "number": "a number above 0",
        "flag": "true or false",
    }
    shown = "too large" if isinstance(value, int) and abs(value) >= 1e12 else f"{value!r:.80}"  # digits have a limit
    raise FrontmatterInvalid(line, f"{key} is {shown}: {needed[kind]} is needed")


def _checked_names(key: str, names: Sequence[str], line: int) -> tuple[str, ...]:
    """The names in a field. Raises: FrontmatterInvalid: there are too many, or one is too long."""
    if len(names) > NAMES_MAX:
        raise FrontmatterInvalid(line, f"{key} has {len(names):,} names, the limit is {NAMES_MAX}")
    if long := next((name for name in names if len(name) > NAME_CHARS), ""):
        raise FrontmatterInvalid(
            line, f"{key} has the name {long[:40]!r}… of {len(long):,} characters, the limit is {NAME_CHARS}"
        )
    return tuple(names)


def _quote_plain(source: Sequence[str]) -> list[str]:
    """The lines, with the value of each field that stands on one line, and is no list or object, in quotes."""
    mended = []
    for number, line in enumerate(source):
        found = _PLAIN_FIELD.fullmatch(line.rstrip())
        follows = source[number + 1] if number + 1 < len(source) else ""
        if found is None or _is_meant(found[1], found[2]) or follows[:1] in (" ", "\t") or _is_yaml(line):
            mended.append(line)
        else:
            mended.append(f"{found[1]}: {json.dumps(found[2], ensure_ascii=False)}")
    return mended


def _is_meant(key: str, value: str) -> bool:
    """Whether a value is meant as YAML beyond a plain text: a list, a block, an anchor, an alias or a tag."""
    begins = "|>&!" if FIELD_TYPES.get(snake_case(key)) == "text" else "|>&!{["
    return value[0] in begins or re.fullmatch(r"\*\w+", value) is not None


def _is_yaml(line: str) -> bool:
    """Whether a line is a field on its own."""
    try:
        _load([line])
    except FrontmatterInvalid:
        return False
    return True


def typed_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a definition given as JSON. Raises: FrontmatterInvalid: a known field has a wrong type."""
    typed = {(name := snake_case(key)): _convert_value(name, value, 1) for key, value in values.items()}
    return {name: value for name, value in typed.items() if value is not None}


def snake_case(key: str) -> str:
    """A key in snake_case: `argument-hint` and `argumentHint` are `argument_hint`."""
    return _WORD_BREAK.sub("_", key.strip()).replace("-", "_").lower()
