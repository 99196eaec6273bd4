"""The pages of the site's reference that are made from the code: public names with their methods, and HTTP routes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import perdure
from perdure.server.serving.app import build_document

ENTRIES = ("Perdure", "Agent", "Archive", "Folder", "Group")
"""The classes by which programs begin; the other classes of the library are reached through their attributes."""
FROM_CODE = "This page is made from the code of this version."
_QUOTED = re.compile(r"(?<=: )'([^']*)'|(?<=-> )'([^']*)'")
_SECTION = re.compile(r"^(?:Args|Returns|Raises|Source):")


def library_page() -> str:
    """Return the page of all public names: classes with their methods, values, functions, errors."""
    named = {name: getattr(perdure, name) for name in sorted(perdure.__all__) if name[5:] not in ENTRIES}
    errors = {name: one for name, one in named.items() if isinstance(one, type) and issubclass(one, Exception)}
    rest = {name: one for name, one in named.items() if name not in errors and name not in ENTRIES}
    return "\n\n".join(
        (
            f"# Library reference\n\n{FROM_CODE} [The library](library.md) explains how the names work together. Each"
            " class of the first two parts has an asynchronous one: `AsyncPerdure` has the methods of `Perdure`.",
            "## Stores and agents",
            *(_class(name, named[name]) for name in ENTRIES),
            "## What they have",
            *(_class(name, one, "") for name, one in _attributes().items()),
            "## Values",
            *(_class(name, one) for name, one in rest.items() if isinstance(one, type)),
            "## Functions",
            *(_member(name, one, 3) for name, one in rest.items() if not isinstance(one, type)),
            "## Errors\n\n[Errors](errors.md) says what helps.",
            _table(
                "error | is a | when", ((name, one.__mro__[1].__name__, _line(one)) for name, one in errors.items())
            ),
        )
    )


def http_page() -> str:
    """Return the page of all HTTP routes: what they do, their parameters, answers and errors."""
    document = build_document(has_key=False)
    groups: dict[str, list[str]] = {}
    errors: dict[str, str] = {}
    for path, verbs in document["paths"].items():
        for verb, route in verbs.items():
            group = next(iter(route.get("tags", ())), path.strip("/").removeprefix("v1/").split("/")[0])
            groups.setdefault(group, []).append(_route(f"{verb.upper()} {path}", route, document["components"]))
            errors |= {code: one["description"] for code, one in route["responses"].items() if code >= "400"}
    head = (
        f"# HTTP reference\n\n{FROM_CODE} [The server](server.md) explains how to use the routes; a running server has"
        " the same at `/docs`, and as OpenAPI at `/openapi.json`.\n\n## Errors"
    )
    parts = (f"## {group}\n\n" + "\n\n".join(routes) for group, routes in sorted(groups.items()))
    return "\n\n".join((head, _table("error | when", sorted(errors.items())), *parts))


@cache
def _attributes() -> Mapping[str, type]:
    """Return the plain classes of the library and of features that attributes of `ENTRIES` have, by name."""
    homes = [home.name for home in pkgutil.walk_packages(perdure.__path__, "perdure.") if ".sync" in home.name]
    classes = (one for home in homes for one in vars(importlib.import_module(home)).values() if inspect.isclass(one))
    known = {one.__name__: one for one in classes if ".sync" in one.__module__}
    members = (one for entry in ENTRIES for _, one in _members(getattr(perdure, entry)) if isinstance(one, property))
    return {name: known[name] for name in sorted({*map(_kind, members)} & {*known} - {*ENTRIES})}


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, of those above it too, by name."""
    names = {name for one in owner.__mro__ if one.__module__.startswith("perdure.") for name in vars(one)}
    for name in sorted(name for name in names if not name.startswith("_")):
        member = inspect.getattr_static(owner, name)
        member = getattr(owner, name) if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(member, property) or inspect.isroutine(member):
            yield name, member


def _class(name: str, owner: type, call: str | None = None) -> str:
    """Return the part of a class, with its methods and properties. `call`: how it is made, if that is of interest."""
    call = "" if getattr(owner, "_is_protocol", False) else _call(name, owner) if call is None else call
    rows = [
        f"- `{label}`: {f'[{_kind(one)}](#{_kind(one).lower()}). ' if _kind(one) in _attributes() else ''}{_line(one)}"
        for label, one in _members(owner)
        if isinstance(one, property)
    ]
    methods = [_member(f"{name}.{label}", one, 4) for label, one in _members(owner) if not isinstance(one, property)]
    return "\n\n".join(filter(None, (f"### {name}", _text(owner), call, "\n".join(rows), *methods)))


def _member(name: str, member: Any, level: int) -> str:
    """Return the part of a method or function."""
    return "\n\n".join(filter(None, (f"{'#' * level} {name}", _call(name.rpartition(".")[2], member), _text(member))))


def _kind(member: property) -> str:
    """Return what a property is, as its annotation says."""
    return str(member.fget.__annotations__.get("return", "")) if member.fget else ""


def _call(name: str, member: Any) -> str:
    """Return how something is called, as code; one argument a line where they are many."""
    try:
        signature = inspect.signature(member)
    except (TypeError, ValueError):  # an alias of types
        return ""
    parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    text = re.sub(r"<[^=]*? at 0x\w+>|<[^=]*?>(?=[,)])", "...", f"{name}{signature.replace(parameters=parameters)}")
    text = _QUOTED.sub(lambda match: match[1] or match[2], text).removesuffix(" -> None")
    text = text if len(text) < 100 else re.sub(r", (?=\*?\*?\w+(?:: | = |,|\)))", ",\n    ", text)
    return f"```python\n{text}\n```"


def _text(member: Any) -> str:
    """Return a docstring of its own as Markdown."""
    own = member.__doc__ if not inspect.isclass(member) or member.__doc__ != member.__base__.__doc__ else ""
    text = inspect.cleandoc(own or "") if "Protocol classes are defined as" not in (own or "") else ""
    return "```".join(part if at % 2 else _as_lists(part) for at, part in enumerate(text.split("```")))


def _as_lists(text: str) -> str:
    """Return a text without code as Markdown: what stands below `Args:` is a list."""
    lines, in_list = [""], False
    for line in text.replace("<", "&lt;").split("\n"):
        if _SECTION.match(line):
            in_list = line.endswith(":")
            lines += ["", line, ""] if in_list else ["", line]
        elif in_list and line.startswith("    ") and line[4:5] != " ":
            lines.append(f"- {line[4:]}")
        elif line.startswith("    "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines[1:])


def _line(member: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(_text(member).partition("\n\n")[0].split())


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a table; empty: it has no row."""
    lines = [
        " | ".join(" ".join(cell.split()).replace("|", "\\|").replace("<", "&lt;") for cell in row) for row in rows
    ]
    return "\n".join(f"| {line} |" for line in (head, re.sub(r"[^|]+", "---", head), *lines)) if lines else ""


def _route(name: str, route: Mapping[str, Any], components: Mapping[str, Any]) -> str:
    """Return the part of a route."""
    rows = [(one["name"], one["in"], one["schema"], one["required"], one) for one in route.get("parameters", ())]
    for kind in route.get("requestBody", {}).get("content", {}).values():
        schema = components["schemas"].get(_type(kind["schema"]), kind["schema"])
        fields = schema.get("properties", {}).items()
        rows += [(field, "body", one, field in schema.get("required", ()), one) for field, one in fields]
    cells = (
        (f"`{field}`" + must * " (required)", place, _type(schema), about.get("description", ""))
        for field, place, schema, must, about in rows
    )
    answers = route["responses"].items()
    good = [_type(one["schema"]) for code, all_ in answers if code < "300" for one in all_.get("content", {}).values()]
    bad = ", ".join(code for code, _ in answers if code >= "400")
    gives = f"Answer: {', '.join(dict.fromkeys(filter(None, good))) or 'nothing'}. Errors: {bad or 'none'}."
    says = route.get("description", route.get("summary", "")).replace("<", "&lt;")
    return "\n\n".join(filter(None, (f"### {name}", says, _table("parameter | in | type | ", cells), gives)))


def _type(schema: Mapping[str, Any]) -> str:
    """Return a type of the document in a word or a few."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if kinds := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(dict.fromkeys(filter(None, map(_type, kinds))))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{one}`" for one in choices)
    kind = str(schema.get("type", ""))
    return f"array of {_type(schema['items'])}".removesuffix(" of ") if kind == "array" and "items" in schema else kind
