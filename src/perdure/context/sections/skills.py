"""The prompt section with the skills of the caller's environment: name, description and location."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.text.markup import escape_tags

NOTE = (
    "Skills that the environment of this request has: instructions for a kind of work, which are not shown here."
    " Where one fits, read it at its location with your tools before you begin."
)


def skills_section(skills: Sequence[Mapping[str, Any]]) -> str:
    """Render the section, a line for each skill (`name`, `description`, `location`), sorted by name; empty for none."""
    if not skills:
        return ""
    lines = [
        json.dumps({key: skill[key] for key in ("name", "description", "location")}, ensure_ascii=False)
        for skill in sorted(skills, key=lambda skill: (str(skill["name"]), str(skill["location"])))
    ]
    return "\n".join(("<available_skills>", NOTE, *map(escape_tags, lines), "</available_skills>"))
