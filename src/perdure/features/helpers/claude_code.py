"""The parts of Claude Code's definitions that work differently here, with the warnings about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from perdure.core.text.forms import name_form
from perdure.features.plugins.definitions import Definition
from perdure.features.plugins.frontmatter import snake_case

MEMORY_SCOPES: Final = ("user", "project", "local")
"""Where Claude Code keeps the memory of a helper; here it is a block of the helper's own."""

PRELOADED_CHARS = 20_000
"""The most characters of the skills that a definition names which a helper reads at once."""

_UNKNOWN = re.compile(r"'([\w-]+)' is not known here, and has no effect$")
_NO_EFFECT: Final[Mapping[str, str]] = {
    "allowed_tools": "the field `tools` names the tools of a helper",
    "background": "a call waits for its result, while other calls of the answer go on",
    "effort": "a helper on the model of the agent that calls thinks as much as that, on another one as its default is",
    "hooks": "the hooks of settings and plug-ins are called for helpers, too",
    "initial_prompt": "a helper is not a main session; it begins with the prompt of the call",
    "isolation": "a helper has no work tree of its own",
    "permission_mode": "what needs approval for the agent that calls needs it for its helpers",
}
"""Field -> what holds in its place."""


def field_notes(definition: Definition) -> Iterator[str]:
    """Yield notes on fields of a definition that have no effect here, or another one than in Claude Code."""
    for note in definition.notes:
        found = _UNKNOWN.search(note)
        why = found and _NO_EFFECT.get(snake_case(found[1]))
        yield f"{note.removesuffix(found[0])}{found[1]} has no effect here: {why}" if found and why else note
    if (scope := definition.fields.get("memory")) in MEMORY_SCOPES:
        yield f"memory: {scope}: it is a memory of the helper's own here, one for each agent that calls"
    for key, outcome in (("tools", "it gives no tool"), ("disallowed_tools", "the whole tool is taken away")):
        for name in definition.fields.get(key, ()):
            if "(" in name:
                yield f"{key}: {name}: a limit of arguments can't be enforced here, so {outcome}"


def preload_skills(definition: Definition, known: Mapping[str, Definition]) -> tuple[Sequence[str], Sequence[str]]:
    """Return (the texts of the skills that a definition names, notes on those that are not read at once)."""
    texts, notes, left = list[str](), list[str](), PRELOADED_CHARS
    for name in dict.fromkeys(definition.fields.get("skills", ())):
        form = name_form(name)
        skill = known.get(form) or known.get(f"{definition.plugin}:{form}")
        if skill is None:
            notes.append(f"skills: {name}: there is no file of this skill")
        elif skill.fields.get("disable_model_invocation"):
            notes.append(f"skills: {name}: only people may use it")
        elif len(skill.body) > left:
            notes.append(f"skills: {name}: it is too long to be read at once; `read_skill` reads it")
        else:
            left -= len(skill.body)
            texts.append(f"Skill {skill.name}:\n\n{skill.body}")
    return texts, notes
