"""A tool's schema as every provider takes it, with the same meaning; and a model's arguments back in the tool's names.

Refused somewhere, with the whole request: a list that does not say what it holds, also a tuple; `anyOf` and the like
over all arguments; an object without `properties`; names of arguments with other characters than letters, digits, `_`,
`.` and `-`. What a schema can't say then stands in the description. The tool itself still checks by its own schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.text.json_strings import compact_json
from perdure.core.tools.schema_check import LISTS, MAPS, PARTS, resolve

NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]+")
_AT_ROOT = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas")
"""Keywords that no schema of arguments may have at its root."""


@dataclass(frozen=True, slots=True)
class PortableTool:
    """A tool's definition as it is sent.

    Args:
        shape: name, description and parameters.
        aliases: name of an argument -> the name that it has there.
        problems: what was not portable, in words.
    """

    shape: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def sent(self, arguments: Any) -> Any:
        """Arguments with the names that they have there."""
        return _renamed(arguments, self.aliases)

    def read(self, arguments: Any) -> Any:
        """A model's arguments with the tool's own names."""
        return _renamed(arguments, {alias: name for name, alias in self.aliases.items()})


def portable(tool: Mapping[str, Any]) -> PortableTool:
    """The tool as it is sent; its definition unchanged if that is portable.

    >>> portable({"name": "f", "description": "", "parameters": {"properties": {"$top": {"type": "array"}}}}).aliases
    {'$top': '_top'}
    """
    schema: Mapping[str, Any] = tool["parameters"]
    names = set(_names(schema))
    aliases: dict[str, str] = {}
    for name in sorted(name for name in names if not NAME.fullmatch(name)):
        aliases[name] = _alias(name, names | set(aliases.values()))
    problems = [f"the name {name!r} is sent as {alias!r}" for name, alias in aliases.items()]
    converted = _Converter(aliases, problems).convert(schema)
    root, notes = _without_root_choices({"type": "object", "properties": {}, **resolve(converted, converted)})
    if notes:
        problems.append(f"what stands over all arguments is said in the description: {' '.join(notes)}")
    if not problems and root == schema:
        return PortableTool(tool)
    description = "\n".join(filter(None, (str(tool.get("description") or ""), *notes)))
    return PortableTool({**tool, "description": description, "parameters": root}, aliases, problems)


def _names(schema: Any) -> Iterator[str]:
    """The names of all arguments and of the parts of their values."""
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key == "properties":
            yield from value
        parts: Iterable[Any] = value.values() if key in MAPS else [value] if key in PARTS else ()
        for part in value if key in (*LISTS, "items") and isinstance(value, list | tuple) else parts:
            yield from _names(part)


def _alias(name: str, taken: set[str]) -> str:
    """A portable name for an argument that none of the others has."""
    alias = _NOT_IN_NAMES.sub("_", name)[:60] or "_"
    return (
        alias
        if alias not in taken
        else next(other for number in range(2, len(taken) + 3) if (other := f"{alias}{number}") not in taken)
    )


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case Mapping() if names:
            return {names.get(name, name): _renamed(one, names) for name, one in value.items()}
        case [*items] if names:
            return [_renamed(one, names) for one in items]
    return value


@dataclass(frozen=True, slots=True)
class _Converter:
    """Converts a schema and its parts.

    Args:
        aliases: as in `PortableTool`.
        problems: takes what was not portable.
    """

    aliases: Mapping[str, str]
    problems: list[str]

    def convert(self, schema: Any, name: str = "") -> Any:
        """The schema of what has this name."""
        if not isinstance(schema, Mapping):
            return schema
        shape: dict[str, Any] = {}
        for key, value in schema.items():
            if key in MAPS and isinstance(value, Mapping):
                is_named = key == "properties"
                shape[key] = {
                    self._alias(one) if is_named else one: self._part(one, part, is_named)
                    for one, part in value.items()
                }
            elif key in LISTS and isinstance(value, list | tuple):
                shape[key] = [self.convert(part, name) for part in value]
            elif key == "items" and isinstance(value, list | tuple):  # older drafts' `prefixItems`
                shape["prefixItems"] = [self.convert(part, name) for part in value]
            elif key in PARTS:
                shape[key] = self.convert(value, name)
            elif key == "required":
                shape[key] = [self._alias(one) for one in value]
            elif key == "$ref":
                shape[key] = "/".join(map(self._alias, value.split("/")))
            else:
                shape[key] = value
        kind = shape.get("type")
        if "prefixItems" in shape or (
            "items" not in shape and (kind == "array" or (isinstance(kind, list) and "array" in kind))
        ):
            self._list(shape, name)
        return shape

    def _alias(self, name: str) -> str:
        return self.aliases.get(name, name)

    def _part(self, name: str, schema: Any, is_named: bool) -> Any:
        """The schema of an argument, whose description says its own name."""
        shape = self.convert(schema, name)
        if is_named and name in self.aliases and isinstance(shape, Mapping):
            return {**shape, "description": f"{shape.get('description') or ''} (its own name is {name})".strip()}
        return shape

    def _list(self, shape: dict[str, Any], name: str) -> None:
        """Say what a list holds, and in the description what stands at which place."""
        firsts, rest = shape.pop("prefixItems", ()), shape.get("items", {})
        if not firsts:
            self.problems.append(f"{name!r} is a list that does not say what it holds: it may hold anything")
            shape["items"] = {}
            return
        self.problems.append(f"{name!r} is a list with places of their own: they are said in its description")
        kinds = [*firsts, *([rest] if rest else [])] if rest != {} or "items" in shape else list(firsts)
        kinds = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
        shape["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        if rest is False:
            shape["maxItems"] = min(shape.get("maxItems", len(firsts)), len(firsts))
        places = ", ".join(map(compact_json, firsts))
        shape["description"] = f"{shape.get('description') or ''} Its items in order: {places}.".strip()


def _without_root_choices(root: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The schema of all arguments without what may not stand there, and sentences that say it."""
    notes: list[str] = []
    for key in [key for key in _AT_ROOT if key in root]:
        value = root.pop(key)
        parts = [resolve(part, root) for part in value] if key in ("allOf", "anyOf", "oneOf") else []
        parts = [part for part in parts if isinstance(part, Mapping)]
        properties: dict[str, Any] = dict(root.get("properties", {}))
        for name, one in ((name, one) for part in parts for name, one in part.get("properties", {}).items()):
            known = properties.get(name, one)
            properties[name] = one if known == one else {"anyOf": [*known.get("anyOf", [known]), one]}
        needed = [set(part.get("required", ())) for part in parts]
        shared = set().union(*needed) if key == "allOf" else set.intersection(*needed) if needed else set()
        root["properties"] = properties
        required = [*root.get("required", ()), *sorted(shared)]
        root |= {"required": list(dict.fromkeys(required))} if required else {}
        if key == "allOf":
            continue
        if parts and all(part.keys() == {"required"} for part in parts):
            choices = "; or ".join(", ".join(part["required"]) for part in parts)
            notes.append(f"Give {'exactly one of these' if key == 'oneOf' else 'at least one of these'}: {choices}.")
        else:
            notes.append(f"All arguments together must fit {key}: {compact_json(value)}")
    return root, notes
