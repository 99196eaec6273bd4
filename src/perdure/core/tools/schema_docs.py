"""Parse the docstring of a tool: Google, NumPy, Sphinx and Epydoc style, or plain text."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

_SECTION = re.compile(r"(args|arguments|parameters|params|returns?|raises|yields|examples?)\s*:?\s*$|[:@]\w+", re.I)
"""A first line of a docstring that does not describe the tool itself."""

_STAND_IN = "-\n\n"


@dataclass(frozen=True, slots=True)
class Docs:
    """A tool's description, with the long text and examples of its docstring; and parameter -> text."""

    description: str
    parameters: dict[str, str]


def parse_docs(docstring: str | None) -> Docs:
    """Parse a docstring for a model, without the sections on results and errors. Never raises."""
    # Needed only where a tool is defined.
    import docstring_parser

    text = inspect.cleandoc(docstring or "")
    first = text.split("\n", 1)[0]
    nameless = bool(_SECTION.match(first.strip()))
    try:
        parsed = docstring_parser.parse(_STAND_IN + text if nameless else text)
    except docstring_parser.ParseError:
        return Docs(text, {})
    parts = [] if nameless else [parsed.short_description, parsed.long_description]
    for example in parsed.examples:
        example_text = "\n".join(filter(None, (example.snippet, example.description)))
        parts.append(f"Examples:\n{example_text}" if example_text else None)
    parameters: dict[str, str] = {}
    for parameter in parsed.params:
        if parameter.description:
            for name in parameter.arg_name.split(","):  # NumPy: several of one description
                parameters[_plain(name)] = parameter.description.strip()
    return Docs("\n\n".join(part.strip() for part in parts if part and part.strip()), parameters)


def _plain(name: str) -> str:
    """Return a parameter's name without the characters around it: `*rest`, `city (`."""
    match = re.search(r"[^\W\d]\w*", name)
    return match[0] if match else name.strip()
