"""A tool's schema as every provider takes it, with the same meaning; and a model's arguments back in the tool's names.

Refused somewhere, with the whole request: a list that does not say what it holds, also a tuple; `anyOf` and the like
over all arguments; an object without `properties`; names of arguments with other characters than letters, digits, `_`,
`.` and `-`. What a schema can't say then stands in the description. The tool itself still checks by its own schema.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.text.json_strings import compact_json
from perdure.core.tools.schema import LISTS, MAPS, PARTS, resolve
from perdure.core.tools.spec import ToolSpec

_FOREIGN = re.compile(r"[^a-zA-Z0-9_.-]")
_IN_REFERENCE = re.compile(r"(?<=/properties/)[^/]+")
_NAME_CHARS_MAX = 64
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


def portable(tool: Mapping[str, Any]) -> PortableTool:
    """The tool as it is sent; its definition unchanged if that is portable.

    >>> portable({"name": "f", "description": "", "parameters": {"properties": {"$top": {"type": "array"}}}}).aliases
    {'$top': 'x24_top'}
    """
    schema: Mapping[str, Any] = tool["parameters"]
    converter = _Converter({}, [])
    converted = converter.convert(schema)
    root, notes = _without_root_choices({"type": "object", "properties": {}, **resolve(converted, converted)})
    problems = [f"the name {name!r} is sent as {alias!r}" for name, alias in converter.aliases.items()]
    problems += [*converter.problems, *notes]
    if not problems and root == schema:
        return PortableTool(tool)
    description = "\n".join(filter(None, (str(tool.get("description") or ""), *notes)))
    return PortableTool({**tool, "description": description, "parameters": root}, converter.aliases, problems)


def schema_warnings(spec: ToolSpec) -> Sequence[str]:
    """What of a tool's schema models are told in another way, in words for the person who attaches it."""
    problems = portable({"name": spec.name, "parameters": spec.parameters}).problems
    return [f"Models are told another schema of this tool: {problem}" for problem in problems]


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A value of JSON with other names in its objects."""
    if isinstance(value, Mapping):
        return {names.get(name, name): renamed(one, names) for name, one in value.items()}
    return [renamed(one, names) for one in value] if isinstance(value, list) else value


def _alias(name: str) -> str:
    """A portable name, of which no other name is the alias."""
    alias = _FOREIGN.sub(lambda found: f"x{ord(found[0]):x}_", name)
    if len(alias) <= _NAME_CHARS_MAX:
        return alias
    return f"{alias[:50]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class _Converter:
    """Converts a schema and its parts; it collects aliases and problems, as `PortableTool` has them."""

    aliases: dict[str, str]
    problems: list[str]

    def convert(self, schema: Any, name: str = "") -> Any:
        """The schema of what has this name."""
        if not isinstance(schema, Mapping):
            return schema
        shape: dict[str, Any] = {}
        for key, value in schema.items():
            if key == "items" and isinstance(value, list | tuple):  # older drafts' `prefixItems`
                key = "prefixItems"
            if key == "properties":
                shape[key] = dict(self._argument(one, part) for one, part in value.items())
            elif key in MAPS:
                shape[key] = {one: self.convert(part, one) for one, part in value.items()}
            elif key in LISTS:
                shape[key] = [self.convert(part, name) for part in value]
            elif key in PARTS:
                shape[key] = self.convert(value, name)
            elif key == "required":
                shape[key] = list(map(_alias, value))
            elif key == "$ref":
                shape[key] = _IN_REFERENCE.sub(lambda found: _alias(found[0]), value)
            else:
                shape[key] = value
        kinds = shape.get("type")
        is_list = "array" in (kinds if isinstance(kinds, list) else [kinds])
        if "prefixItems" in shape or (is_list and "items" not in shape):
            self._list(shape, name)
        return shape

    def _argument(self, name: str, schema: Any) -> tuple[str, Any]:
        """An argument's name there, and its schema, whose description then says the tool's name of it."""
        shape, alias = self.convert(schema, name), _alias(name)
        if alias != name:
            self.aliases[name] = alias
            note = f"{shape.get('description') or ''} (its own name is {name})" if isinstance(shape, Mapping) else ""
            shape = {**shape, "description": note.strip()} if note else shape
        return alias, shape

    def _list(self, shape: dict[str, Any], name: str) -> None:
        """Say what a list holds, and in the description what stands at which place."""
        firsts, rest = shape.pop("prefixItems", ()), shape.get("items")
        if not firsts:
            self.problems.append(f"{name!r} is a list that does not say what it holds: it may hold anything")
            shape["items"] = {}
            return
        self.problems.append(f"{name!r} is a list with places of their own: they are said in its description")
        kinds = list({compact_json(kind): kind for kind in (*firsts, rest) if isinstance(kind, Mapping)}.values())
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
        parts = [resolve(part, root) for part in value] if key in LISTS else []
        properties, needed = dict(root["properties"]), [set(part.get("required", ())) for part in parts]
        for name, one in [item for part in parts for item in part.get("properties", {}).items()]:
            known = properties.get(name, one)
            properties[name] = one if known == one else {"anyOf": [*known.get("anyOf", [known]), one]}
        root["properties"] = properties
        shared = set[str]().union(*needed) if key == "allOf" else set.intersection(*needed) if needed else set()
        if shared:
            root["required"] = list(dict.fromkeys((*root.get("required", ()), *sorted(shared))))
        if parts and all(part.keys() == {"required"} for part in parts):
            choices = "; or ".join(", ".join(part["required"]) for part in parts)
            notes.append(f"Give {'exactly one of these' if key == 'oneOf' else 'at least one of these'}: {choices}.")
        elif key != "allOf":
            notes.append(f"All arguments together must fit {key}: {compact_json(value)}")
    return root, notes
