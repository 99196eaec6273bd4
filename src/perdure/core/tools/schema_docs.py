"""What a docstring says of a tool and its parameters: Google, NumPy, Sphinx and Epydoc style, or plain text."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

__all__ = ["Docs", "read_docs"]

_SECTION = re.compile(r"(args|arguments|parameters|params|returns?|raises|yields|examples?)\s*:?\s*$|[:@]\w+", re.I)
"""What the first line of a docstring is that says nothing of the tool itself."""

_STAND_IN = "-\n\n"


@dataclass(frozen=True, slots=True)
class Docs:
    """Of a tool: what it is for, with what the docstring says at length and its examples; and parameter -> text."""

    description: str
    parameters: dict[str, str]


def read_docs(docstring: str | None) -> Docs:
    """The parts of a docstring that a model is told; what it returns and raises is left out. Never raises."""
    # Needed only where a tool is defined.
    import docstring_parser

    text = inspect.cleandoc(docstring or "")
    first = text.split("\n", 1)[0]
    nameless = bool(_SECTION.match(first.strip()))
    try:
        parsed = docstring_parser.parse(_STAND_IN + text if nameless else text)
    except docstring_parser.ParseError:
        return Docs(text, {})
    said = [] if nameless else [parsed.short_description, parsed.long_description]
    for example in parsed.examples:
        shown = "\n".join(filter(None, (example.snippet, example.description)))
        said.append(f"Examples:\n{shown}" if shown else None)
    parameters: dict[str, str] = {}
    for parameter in parsed.params:
        if parameter.description:
            for name in parameter.arg_name.split(","):  # NumPy: several of one description
                parameters[_plain(name)] = parameter.description.strip()
    return Docs("\n\n".join(part.strip() for part in said if part and part.strip()), parameters)


def _plain(name: str) -> str:
    """A parameter's name without what some write around it: `*rest`, `city (`."""
    found = re.search(r"[^\W\d]\w*", name)
    return found[0] if found else name.strip()
