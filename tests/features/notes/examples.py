"""A note of each kind with all of its fields, as the tests of notes write them."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.features.notes.values import note_kinds

KINDS = tuple(note_kinds())


def title_of(kind: str) -> str:
    """A title for a note of a kind."""
    return f"About the {kind}"


def fields_of(kind: str) -> Mapping[str, str]:
    """A text for each field of a kind, different for each, with lines that look like headings."""
    return {name: f"{kind} {name} text.\n\n# no heading\n## Cause\n  - a list" for name in note_kinds()[kind].fields}
