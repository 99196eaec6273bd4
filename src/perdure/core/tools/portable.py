"""A tool's schema as every provider takes it, with the same meaning; and a model's arguments back in the tool's names.

Refused somewhere, with the whole request: a list that does not say what it holds, also a tuple; `anyOf` and the like
over all arguments; an object without `properties`; names of arguments with other characters than letters, digits, `_`,
`.` and `-`. What a schema can't say then stands in the description. The tool itself still checks by its own schema.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from perdure.core.specs import ToolSpec
from perdure.core.text.json_strings import compact_json
from perdure.core.tools.schema import LISTS, MAPS, PARTS, target_of

_FOREIGN = re.compile(r"[^a-zA-Z0-9_.-]")
_AT_ITS_PLACE = re.compile(r"#(/(\$defs|definitions)/[a-zA-Z0-9_.-]+)?")
"""A reference that also leads to its schema in what is sent."""
_PLAIN_TEXT = re.compile(r'"([a-zA-Z0-9_.-]+)"')
_NAME_CHARS_MAX = 64
_AT_ROOT = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas")
"""Keywords that no schema of arguments may have at its root."""
_DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")
_OLD_TUPLES = {"items": "prefixItems", "additionalItems": "items"}
"""How older drafts write a tuple: as a list of items."""
_SAID = ("type", "properties", "required", "title", "description", "$defs", "definitions")
"""What a part of the root says there too, or need not say."""


@dataclass(frozen=True, slots=True)
class PortableTool:
    """A tool's definition in the form in which every provider takes it.

    Args:
        shape: name, description and parameters, as they are sent.
        aliases: name of an argument -> its name in `shape`, where that is another one.
        problems: what was not portable, in words.
    """

    shape: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[str] = ()


def portable(tool: Mapping[str, Any]) -> PortableTool:
    """Return the form of a tool's definition that every provider takes: the definition itself if that will do.

    >>> portable({"name": "f", "description": "", "parameters": {"properties": {"$top": {"type": "array"}}}}).aliases
    {'$top': 'x24_top'}
    """
    schema: Mapping[str, Any] = tool["parameters"]
    try:
        converter = _Converter(schema)
        root, unsaid = _flat(converted := converter.convert_root(), converted, {"#"})
    except Exception as error:  # a schema that makes no sense, stored before it was looked at: it never ends a run
        problem = f"its schema can't be read ({type(error).__name__}: {error!s:.200}): arguments of any kind"
        return PortableTool({**tool, "parameters": {"type": "object", "properties": {}}}, problems=[problem])
    root = {"type": "object", "properties": {}, **root} | {"type": "object"}
    notes = [one if isinstance(one, str) else f"All arguments together must fit {compact_json(one)}" for one in unsaid]
    problems = [f"the name {name!r} is sent as {alias!r}" for name, alias in converter.aliases.items()]
    problems += [*converter.problems, *notes]
    if not problems and root == schema:
        return PortableTool(tool)
    description = "\n".join(filter(None, (str(tool.get("description") or ""), *notes)))
    return PortableTool({**tool, "description": description, "parameters": root}, converter.aliases, problems)


def schema_warnings(spec: ToolSpec) -> Sequence[str]:
    """Return, for the person who attaches the tool, which parts of its schema are passed to models in another form."""
    problems = _list_problems(spec.name, json.dumps(spec.parameters))
    return [f"Models are told another schema of this tool: {problem}" for problem in problems]


@functools.lru_cache(maxsize=256)
def _list_problems(name: str, schema: str) -> Sequence[str]:
    """Return what of a schema, as JSON, is not portable. It is kept, because many agents have the same tools."""
    return portable({"name": name, "parameters": json.loads(schema)}).problems


def rename_members(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value of JSON with other names of members in its objects; `names`: old name -> new name."""
    if isinstance(value, Mapping):
        return {names.get(name, name): rename_members(one, names) for name, one in value.items()}
    return [rename_members(one, names) for one in value] if isinstance(value, list) else value


class _Converter:
    """Converts the schema `root` and its parts to what providers take, and collects the aliases and problems of a
    `PortableTool`. The methods' `name` is that of the argument or definition, for `problems`."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._taken = set(_PLAIN_TEXT.findall(compact_json(root)))
        self._moved: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        self.problems: list[str] = []

    def convert_root(self) -> dict[str, Any]:
        """Return the whole schema; schemas at places to which no reference may lead are moved to its `$defs`."""
        shape = self.convert(self._root)
        if self._definitions:
            shape["$defs"] = {**shape.get("$defs", {}), **self._definitions}
        return shape

    def convert(self, schema: Any, name: str = "") -> dict[str, Any]:
        """Return the portable form of a schema."""
        if not isinstance(schema, Mapping):
            return {"not": {}} if schema is False else {}
        shape: dict[str, Any] = {}
        is_old = isinstance(schema.get("items"), list)
        for keyword, value in schema.items():
            key: str = (_OLD_TUPLES.get(keyword) if is_old else None) or keyword
            if key == "properties":
                shape[key] = dict(self._argument(one, part) for one, part in value.items())
            elif key in _DEPENDENT:
                shape[key] = {self._alias(one): self._names_or_schema(part, one) for one, part in value.items()}
            elif key in MAPS:  # a definition with another name than providers take is moved where it is referred to
                own = (one for one in value if key == "patternProperties" or not _FOREIGN.search(one))
                shape[key] = {one: self.convert(value[one], one) for one in own}
            elif key in LISTS:
                shape[key] = [self.convert(part, name) for part in value]
            elif key in PARTS:
                shape[key] = value if isinstance(value, bool) else self.convert(value, name)
            elif key == "required":
                shape[key] = self._names_or_schema(value, name)
            elif key == "$ref":
                shape |= self._reference(value, name)
            elif key == "discriminator" and isinstance(value, Mapping):
                mapping = value.get("mapping") or {}
                shape[key] = {**value, "propertyName": self._alias(str(value.get("propertyName")))}
                shape[key]["mapping"] = {one: self._reference(to, name).get("$ref", to) for one, to in mapping.items()}
            else:
                shape[key] = value
        for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(shape.get(key), bool) and shape.pop(key) and bound in shape:  # older drafts
                shape[key] = shape.pop(bound)
        kinds = shape.get("type")
        is_list = "array" in (kinds if isinstance(kinds, list) else [kinds])
        if "prefixItems" in shape or (is_list and not isinstance(shape.get("items"), Mapping)):
            self._list(shape, name)
        return shape

    def _names_or_schema(self, value: Any, name: str) -> Any:
        """Return a list of argument names as aliases, or any other value as a schema."""
        return [self._alias(one) for one in value] if isinstance(value, list | tuple) else self.convert(value, name)

    def _alias(self, name: str) -> str:
        """Return a name of an argument that providers take: itself, or an alias that nothing else in the schema has."""
        if name and not _FOREIGN.search(name) and len(name) <= _NAME_CHARS_MAX:
            return name
        if name not in self.aliases:
            self.aliases[name] = self._free(_FOREIGN.sub(lambda found: f"x{ord(found[0]):x}_", name)[:50])
        return self.aliases[name]

    def _free(self, plain: str) -> str:
        """Return `plain`, with a number behind it if something in the schema has that name, and take the name."""
        tries = chain([plain], (f"{plain}_{number}" for number in count(1)))
        name = next(one for one in tries if one and one not in self._taken)
        self._taken.add(name)
        return name

    def _reference(self, reference: str, name: str) -> dict[str, str]:
        """Return the keyword `$ref` to the same schema in what is sent; empty: it leads outside of the schema."""
        if (target := target_of(reference, self._root)) is None:
            self.problems.append(f"{name!r} is described outside of the schema ({reference:.80}): it may be anything")
            return {}
        if _AT_ITS_PLACE.fullmatch(reference):
            return {"$ref": reference}
        if reference not in self._moved:
            self._moved[reference] = moved = self._free("part")
            self._definitions[moved] = self.convert(target, name)
        return {"$ref": f"#/$defs/{self._moved[reference]}"}

    def _argument(self, name: str, schema: Any) -> tuple[str, Any]:
        """Return (the name by which an argument is sent, its schema). The description tells a name that differs."""
        shape, alias = self.convert(schema, name), self._alias(name)
        if alias != name:
            shape["description"] = f"{shape.get('description') or ''} (its own name is {name})".strip()
        return alias, shape

    def _list(self, shape: dict[str, Any], name: str) -> None:
        """Change `shape`, the schema of a list: `items` says what the list may hold; the description says what stands
        at which place, which providers do not take in the schema."""
        firsts, other_items = shape.pop("prefixItems", ()), shape.get("items")
        if other_items is False:
            shape["maxItems"] = min(shape.get("maxItems", len(firsts)), len(firsts))
        if not firsts:
            self.problems.append(f"{name!r} is a list that does not say what it holds: it may hold anything")
            shape["items"] = {}
            return
        self.problems.append(f"{name!r} is a list with places of their own: they are said in its description")
        kinds = list(
            {compact_json(kind): kind for kind in (*firsts, other_items) if isinstance(kind, Mapping)}.values()
        )
        shape["items"] = {} if {} in kinds else kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        places = ", ".join(map(compact_json, firsts))
        shape["description"] = f"{shape.get('description') or ''} Its items in order: {places}.".strip()


def _flat(
    schema: Mapping[str, Any], root: Mapping[str, Any], seen: set[str]
) -> tuple[dict[str, Any], list[str | Mapping[str, Any]]]:
    """Return (the schema without the keywords that are illegal at the root, what is lost by that: sentences or
    schemas). References are followed within `root`; `seen` holds those followed so far, and grows."""
    flat = {key: value for key, value in schema.items() if key not in _AT_ROOT}
    root_keywords = {key: schema[key] for key in _AT_ROOT if key in schema}
    properties, required = dict(flat.get("properties", {})), list(flat.get("required", ()))
    parts, unsaid = list(root_keywords.pop("allOf", ())), list[str | Mapping[str, Any]]()
    reference = root_keywords.pop("$ref", "#")
    if reference not in seen:
        seen.add(reference)
        parts.append(target_of(reference, root))
    for part in parts:
        inner, more = _flat(part, root, seen)
        unsaid += more
        if len(parts) == 1 and not properties:
            flat = {**inner, **flat}
        elif any(key not in _SAID for key in inner):
            unsaid.append({key: value for key, value in inner.items() if key not in _SAID[3:]})
        for name, one in inner["properties"].items():
            properties[name] = one if properties.get(name, one) == one else {"allOf": [properties[name], one]}
        required += inner.get("required", ())
    for key in [key for key in ("anyOf", "oneOf") if key in root_keywords]:
        branches = [_flat(part, root, seen)[0] for part in root_keywords[key]]
        for name in dict.fromkeys(name for branch in branches for name in branch["properties"]):
            kinds = [branch["properties"][name] for branch in branches if name in branch["properties"]]
            kinds = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
            properties.setdefault(name, kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
        required += sorted(set.intersection(*[set(branch.get("required", ())) for branch in branches]))
        if all(part.keys() == {"required"} and part["required"] for part in root_keywords[key]):
            choices = "; or ".join(", ".join(part["required"]) for part in root_keywords.pop(key))
            unsaid.append(f"Give {'exactly one of these' if key == 'oneOf' else 'at least one of these'}: {choices}.")
    flat["properties"] = properties
    if required:
        flat["required"] = list(dict.fromkeys(required))
    return flat, [*unsaid, root_keywords] if root_keywords else unsaid
