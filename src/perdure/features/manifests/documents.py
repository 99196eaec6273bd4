"""YAML read by the JSON schema of files of agents into plain values, with the line of each; within limits on its size,
its depth and what its aliases stand for."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

from perdure.core.errors import InvalidInput
from perdure.core.text.forms import name_form
from perdure.features.manifests.schema import manifest_schema
from perdure.features.manifests.values import FileLine

FILE_CHARS = 2_000_000
DEPTH_MAX = 20
VALUES_MAX = 100_000
"""The most values of a file, with each alias counted as what it stands for."""
TEXT_CHARS = 10_000_000
"""The most characters of all its texts, counted in the same way."""
_TYPES: Mapping[str, tuple[Any, str]] = {
    "object": (dict, "fields `name: value`"),
    "array": (list, "a list"),
    "string": (str, "a text: quote it"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
}
"""Type of a schema -> what it is here, and in words."""
_CORE = "tag:yaml.org,2002:"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that keeps dates as texts."""

    yaml_implicit_resolvers: ClassVar = {
        first: [resolver for resolver in resolvers if resolver[0] != f"{_CORE}timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A document of a file. `places`: path of its keys, and of the names in lists -> where it stands."""

    value: Mapping[str, Any]
    places: Mapping[Sequence[str], FileLine]


def read_documents(text: str, file: str) -> Iterator[YamlDocument]:
    """Yield the documents of a file; empty ones are left out. Raises: InvalidInput, with file and line."""
    if len(text) > FILE_CHARS:
        raise InvalidInput(f"{file}: the file has {len(text):,} characters, the limit is {FILE_CHARS:,}")
    try:
        _check_events(text, file)
        loader = _Loader(text)
        try:
            reader = _Reader(loader, file)
            while loader.check_node():
                if (node := loader.get_node()).tag != f"{_CORE}null":
                    reader.places = {}
                    yield YamlDocument(reader.read(node, manifest_schema(), "the file", (), 1), reader.places)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidInput(
            f"{FileLine(file, mark.line + 1 if mark else 1)}: {error.problem or error.context}"
        ) from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{file}: no YAML: {' '.join(str(error).split())[:200]}") from error


def _check_events(text: str, file: str) -> None:
    """Check that a file is not nested too deep and has no tags, before it is built. Raises: InvalidInput, YAMLError."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        place = FileLine(file, event.start_mark.line + 1)
        if getattr(event, "tag", None) and not isinstance(event, yaml.DocumentStartEvent):
            raise InvalidInput(f"{place}: the tag {event.tag!r:.60} is not allowed: write the value alone, or quote it")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise InvalidInput(f"{place}: values are nested more than {DEPTH_MAX} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Reader:
    """Makes plain values of the nodes of a loader by a schema, counts them, and notes where they stand."""

    def __init__(self, loader: Any, file: str) -> None:
        self._loader, self._file, self._count, self._chars = loader, file, 0, 0
        self.places: dict[Sequence[str], FileLine] = {}

    def read(self, node: Any, schema: Mapping[str, Any], what: str, path: tuple[str, ...], depth: int) -> Any:
        """Return the value of a node. `path` and `what`: where it stands and its name, for errors. Raises:
        InvalidInput: it is too large, nested too deep, or does not fit the schema."""
        place = self._place(node)
        self._count += 1
        if self._count > VALUES_MAX or self._chars > TEXT_CHARS:
            raise InvalidInput(
                f"{place}: the file stands for more than {VALUES_MAX:,} values or {TEXT_CHARS:,} characters, its"
                " aliases (`*`) included"
            )
        if depth > DEPTH_MAX:  # an alias may stand for a value that it is in itself
            raise InvalidInput(f"{place}: values are nested more than {DEPTH_MAX} levels deep")
        if reference := schema.get("$ref"):
            schema = manifest_schema()["$defs"][reference.removeprefix("#/$defs/")]
        if node.tag == f"{_CORE}null" and len(path) <= 2 and schema.get("type") == "object":
            node = yaml.MappingNode(f"{_CORE}map", [], node.start_mark)  # a name alone: a thing without fields
        if isinstance(node, yaml.ScalarNode):
            self._chars += len(node.value)
            value: Any = self._scalar(node, place)
        else:
            value = [] if isinstance(node, yaml.SequenceNode) else {}
        if problem := _problem(value, schema):
            raise InvalidInput(f"{place}: {what} {problem}")
        if isinstance(value, list | dict):
            most, things = (schema.get("maxItems"), "items") if value == [] else (schema.get("maxProperties"), "fields")
            if most is not None and len(node.value) > most:
                raise InvalidInput(f"{place}: {what} has {len(node.value):,} {things}, the limit is {most:,}")
        if isinstance(value, dict):
            self._read_fields(value, node, schema, what, path, depth)
        elif isinstance(value, list):
            for one in node.value:
                item = self.read(one, schema.get("items", {}), f"an item of {what}", path, depth + 1)
                if schema.get("uniqueItems"):
                    item = name_form(item)
                    if item in value:
                        raise InvalidInput(f"{self._place(one)}: {item!r} is there twice")
                    self.places[*path, item] = self._place(one)
                value.append(item)
        return value

    def _read_fields(
        self, found: dict[str, Any], node: Any, schema: Mapping[str, Any], what: str, path: tuple[str, ...], depth: int
    ) -> None:
        """Read an object's fields into `found`. Raises: InvalidInput: as `read`; a duplicate, missing or odd key."""
        known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key_node, value_node in node.value:
            place, key = self._place(key_node), name_form(key_node.value)
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_CORE}merge":
                raise InvalidInput(
                    f"{place}: a key is no text: merge keys (`<<`), lists and objects are not taken as one"
                )
            if key in found:
                before = self.places[*path, key].line
                raise InvalidInput(f"{place}: {key!r:.80} is there twice: it was on line {before} before")
            if key not in known and more is False:
                near = difflib.get_close_matches(key, known, 1)
                helps = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                raise InvalidInput(f"{place}: {what} has no field {key!r:.80}: {helps}")
            if not key.strip() or len(key) > 200 or not key.isprintable():
                raise InvalidInput(f"{place}: the name {key!r:.80} can't be used: 1 to 200 printable characters")
            self._chars += len(key)
            self.places[*path, key] = place
            found[key] = self.read(value_node, known.get(key, more), repr(key), (*path, key), depth + 1)
        for name in schema.get("required", ()):
            if name not in found:
                raise InvalidInput(f"{self._place(node)}: {what} has no {name!r}: it is needed")

    def _place(self, node: Any) -> FileLine:
        """Return where a node begins."""
        return FileLine(self._file, node.start_mark.line + 1)

    def _scalar(self, node: Any, place: FileLine) -> Any:
        """Return the value of a scalar. Raises: InvalidInput: it can't be stored as JSON."""
        try:
            value = self._loader.construct_object(node)
        except ValueError as error:  # such as too many digits
            raise InvalidInput(f"{place}: the value {node.value!r:.80} can't be read: {error}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(f"{place}: the number {node.value!r:.80} is not finite")
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidInput(f"{place}: the value {node.value!r:.80} is of no type that can be used: quote it")
        return value


def _problem(value: Any, schema: Mapping[str, Any]) -> str:
    """Return what is wrong with a value by its schema, whatever is in it; empty: nothing."""
    shown = "empty" if value is None else f"{value!r:.80}"
    shown = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else shown
    if (allowed := schema.get("enum")) and not any(value == one and type(value) is type(one) for one in allowed):
        return f"is {shown}: give {', '.join(json.dumps(one) for one in allowed)}"
    if (kind := schema.get("type")) is not None:
        types, needed = _TYPES[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
            return f"is {shown}: give {needed}"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return f"has {len(value):,} characters: 1 to {schema.get('maxLength', 0):,} are allowed"
        if (pattern := schema.get("pattern")) and not re.search(pattern, value):
            return f"is {shown}: it has another form. {schema.get('description', pattern)}"
    elif isinstance(value, int | float) and value < schema.get("minimum", value):
        return f"is {value}: at least {schema['minimum']}"
    return ""
