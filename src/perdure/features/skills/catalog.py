"""All skills of an agent: those with files, of the six layers of definitions, and those that it or people wrote."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.features import Point
from perdure.core.text.forms import match_form, name_form
from perdure.core.tools.engine_specs import AGENT_TOOL_SPECS, ENGINE_TOOL_SPECS
from perdure.domain.provenance.policy import MEMORY_OWNER
from perdure.features.plugins.definitions import Definition, DefinitionProblem, Definitions, by_weight
from perdure.features.plugins.layers import find_definitions, no_definitions, project_of, settings_of
from perdure.features.plugins.policy import load_policy
from perdure.features.skills.tables import Skills
from perdure.features.skills.values import NO_USES, Skill, SkillUses, SkillView
from perdure.storage.tx import Tx

SKILL_HOLDER: Point[[Tx, Agent], Agent | None] = Point("skill_holder")
"""The agent whose skills another one has, because it works for it; None: it has its own."""

INDEX_LINES = 60
"""The most lines of the index in a prompt; the others are searched."""
FILE_DESCRIPTION_CHARS = 1_000
"""What the index shows of a file's description; a longer one could fill the window."""
NEAR_NAMES = 5
_MORE = "…"
"""The name of the line that stands for those behind the last one; it sorts behind them."""


class SkillNotFound(NotFound):
    """The agent has no skill of this name; the hint has those with similar names."""

    def __init__(self, name: str, known: Sequence[str], why: str = "") -> None:
        near = get_close_matches(name, known, n=NEAR_NAMES, cutoff=0.5) or known[:NEAR_NAMES]
        hint = why or (f"is it {' or '.join(near)}?" if near else "there are no skills yet")
        super().__init__("skill", name[:80], hint=hint)


@dataclass(frozen=True, slots=True)
class SkillIndexLine:
    """A line of the skills' index. `key` identifies the skill without its name, which may be erased."""

    key: str
    name: str
    layer: str
    description: str

    @property
    def version(self) -> int:
        """A number that differs where the line does."""
        return zlib.crc32(f"{self.layer}\n{self.description}".encode("utf-8", "surrogatepass"))


def holder_of(tx: Tx, agent: Agent) -> Agent:
    """Return the agent whose skills this one uses: the one that it works for or whose memory it keeps, else itself."""
    return next(filter(None, (*SKILL_HOLDER(tx, agent), *MEMORY_OWNER(tx, agent))), agent)


def tool_names(tx: Tx, agent: Agent, names: Collection[str]) -> Collection[str]:
    """Return those of these names that a tool of the engine or of the agent has, and so no skill may have."""
    forms = {one: one.casefold().replace("-", "_") for one in names}  # a model mixes up names that only look different
    taken = {form for form in forms.values() if form in ENGINE_TOOL_SPECS or form in AGENT_TOOL_SPECS}
    if others := set(tx.tools.find_named([*names, *forms.values()])):
        taken |= others & {tool.spec.name for tool in tx.tools.list_by_agent(agent.id)}
    return {one for one, form in forms.items() if one in taken or form in taken}


def file_skills(tx: Tx, agent: Agent) -> Definitions:
    """Return the agent's skills with files. One with a tool's name, and all under a broken policy, are problems."""
    settings = settings_of(tx)
    try:
        found = find_definitions("skills", settings, project_of(agent))
    except InvalidInput as error:
        return no_definitions(error, settings)
    taken = tool_names(tx, agent, found.by_name)
    clashes = [one for one in found.by_name.values() if one.name in taken]
    why = "a tool has its name, which no skill shadows"
    problems = [DefinitionProblem(path=one.path, line=0, why=f"{one.name}: {why}") for one in clashes if one.path]
    by_name = {name: one for name, one in found.by_name.items() if one not in clashes}
    free = {match_form(clash.name) for clash in clashes}
    return replace(found, by_name=by_name, problems=[*found.problems, *problems], taken={*found.taken} - free)


def list_skills(tx: Tx, agent: Agent, *, archived: bool | None = False, with_uses: bool = False) -> Sequence[SkillView]:
    """Return the skills of an agent by name: those in the archive, or the others; None: both."""
    uses = tx.of(Skills).uses(agent.id) if with_uses else {}
    files = file_skills(tx, agent)
    found = [] if archived else [_view_of_file(one, uses.get(one.name)) for one in files.by_name.values()]
    found += [
        _view_of(one, uses.get(one.name))
        for one in tx.of(Skills).list(agent.id, archived=archived)
        if files.is_free(one.name) and _may_have(tx, one.name)
    ]
    return sorted(found, key=lambda one: one.name)


def find_skill(tx: Tx, agent: Agent, name: str) -> SkillView:
    """Return the agent's skill of this name, also an archived one; a file's comes first. Raises: SkillNotFound."""
    files, name = file_skills(tx, agent), name_form(name.strip())
    if (definition := files.by_name.get(name)) is not None:
        return _view_of_file(definition)
    if files.is_free(name) and (skill := tx.of(Skills).find(agent.id, name)) is not None and _may_have(tx, name):
        return _view_of(skill)
    own = (one for _, one, _, _ in tx.of(Skills).index(agent.id))
    raise SkillNotFound(name, sorted({*files.by_name, *own}), files.why_refused(name))


def build_index(tx: Tx, agent: Agent) -> Sequence[SkillIndexLine]:
    """Return the lines of the agent's index, by name. Where there is no room for all, those of plug-ins are left out
    first, then the oldest of what it and people wrote."""
    files = file_skills(tx, agent)
    lines = [
        SkillIndexLine(f"skill/{one.name}", one.name, one.layer, one.description[:FILE_DESCRIPTION_CHARS])
        for one in files.by_name.values()
        if not one.fields.get("disable_model_invocation")
    ]
    own = [SkillIndexLine(f"skill-{seq}", *line) for seq, *line in tx.of(Skills).index(agent.id)]
    lines = by_weight([*lines, *(line for line in own if files.is_free(line.name) and _may_have(tx, line.name))])
    shown = sorted(lines[:INDEX_LINES], key=lambda line: line.name)
    left = len(lines) - len(shown)
    return [*shown, SkillIndexLine("skill/", _MORE, "", f"{left} more: search_skills finds them")] if left else shown


def is_skill_key(key: str) -> bool:
    """Return whether a key of what a conversation has seen is a line of the index."""
    return key.startswith(("skill/", "skill-"))


def name_of_key(tx: Tx, agent: Agent, key: str) -> str:
    """Return the name of the skill whose index line has this key, even if it was removed."""
    if key.startswith("skill/"):
        return key.removeprefix("skill/") or _MORE
    return next((one.name for one in tx.of(Skills).list(agent.id, archived=None) if f"skill-{one.seq}" == key), "")


def _may_have(tx: Tx, name: str) -> bool:
    """Whether the policy allows a skill of this name; false where it can't be read."""
    try:
        return load_policy(settings_of(tx)).allows("skills", name)
    except InvalidInput:
        return False


def _view_of_file(one: Definition, uses: SkillUses | None = None) -> SkillView:
    """A skill with a file as people see it."""
    return SkillView(
        name=one.name,
        layer=one.layer,
        description=one.description,
        text=one.body,
        is_protected=bool(one.fields.get("protected")),
        path=str(one.path or ""),
        uses=uses or NO_USES,
    )


def _view_of(one: Skill, uses: SkillUses | None = None) -> SkillView:
    """A skill without a file as people see it."""
    same = ("name", "layer", "description", "text", "version", "is_protected", "archived_at", "changed_at")
    return SkillView(**{name: getattr(one, name) for name in same}, uses=uses or NO_USES)
