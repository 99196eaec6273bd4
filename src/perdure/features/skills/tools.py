"""The tools by which an agent reads, finds and writes skills."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ToolError
from perdure.core.sources import OUTSIDE, Source
from perdure.core.specs import ToolOutcome
from perdure.domain.tools.calls import MemoryCall
from perdure.engine.approvals.answers import client_skills
from perdure.features.plugins.definitions import Definition
from perdure.features.skills import search
from perdure.features.skills.catalog import SkillNotFound, file_skills, find_skill, own_skills
from perdure.features.skills.evidence import find_evidence
from perdure.features.skills.files import NAMES_SHOWN, list_files, read_file
from perdure.features.skills.tables import Skills
from perdure.features.skills.units import NewText, archive_unused, write_constitution, write_skill
from perdure.features.skills.values import Layer, Skill
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from perdure.engine.search.tools import SearchCall

FOUND, FOUND_MAX = 5, 20
FOUND_CHARS = 300
CHARS_PER_TOKEN = 4


def read_skill(tx: Tx, call: MemoryCall, name: str, file: str | None = None) -> ToolOutcome:
    """Return the instructions of a skill, or one of its files, and count the use. Raises: SkillNotFound, ToolError."""
    agent = call.agent
    try:
        skill = find_skill(tx, agent, name)
    except SkillNotFound:
        for client in _client_skills(tx, call):
            if client["name"] == name.strip():
                text = f"{client['name']} is a skill of the client's machine: read {client['location']} with your tools"
                return ToolOutcome(text=f"{text}.")
        raise
    if file:
        text = read_file(skill, file.strip()).decode("utf-8", "replace")
    else:
        text = skill.body if isinstance(skill, Definition) else skill.text
        text = "\n\n".join(filter(None, (_heading(skill), text.strip(), _file_names(skill))))
    if call.person is None:
        tx.of(Skills).add_use(agent.id, skill.name, call.run.key.seq, at=call.now)
    archive_unused(tx, agent.id, at=call.now)
    return ToolOutcome(text=_cut(text, call), sources=_sources_of(tx, skill))


def start_long_term_update(
    tx: Tx, call: MemoryCall, layer: Layer, name: str, text: str, evidence: str, description: str | None = None
) -> ToolOutcome:
    """Write an entry of L2 or L3, or its next version. Raises: AdmissionRefused, InvalidInput."""
    found, doubt = find_evidence(tx, call, evidence)
    new = NewText(
        layer=layer,
        name=name,
        text=text.strip(),
        description=description,
        evidence=found,
        doubt=doubt,
        written_by="agent" if call.person is None else call.author.id,
        run_id=None if call.person is not None else call.run.id,
        sources=[one.source for one in call.passage_sources if one.source.label in OUTSIDE],
    )
    skill, before = write_skill(tx, call.agent, new, at=call.now)
    write_constitution(tx, call.agent.id, author=call.author, ids=call.ids, at=call.now)
    archive_unused(tx, call.agent.id, at=call.now)
    shape = {"name": skill.name, "layer": skill.layer, "version": skill.version, "description": skill.description}
    done = "Stored" if before is None else "It says so already" if before is skill else "Improved"
    return ToolOutcome(text=f"{done}. {json.dumps(shape, ensure_ascii=False)}")


async def search_skills(call: SearchCall, query: str, limit: int = FOUND) -> ToolOutcome:
    """Search the skills of the agent and of its client. Raises: ToolError, TooMany."""
    if not query.strip():
        raise ToolError("the query is empty: say what work it is about")
    texts = await call.store.read(_load_texts, call)
    hits = await search.rank_texts(call.search, texts, query)
    lines = [_hit_line(texts[place]) for place in hits[: max(1, min(limit, FOUND_MAX))]]
    return ToolOutcome(text=call.budget.cut("\n".join(lines) or "No skill found. Try other words."))


def _load_texts(tx: Tx, call: SearchCall) -> Sequence[search.SkillText]:
    """The texts that a search looks at: of files, of the agent, of its client."""
    agent = tx.conversations.get_agent(call.run.key.agent_id, call.run.conversation_seq)
    texts = [
        search.SkillText(one.name, one.layer, one.description, one.body)
        for one in file_skills(tx, agent).by_name.values()
    ]
    for skill in own_skills(tx, agent, archived=None):
        layer = skill.layer if skill.archived_at is None else f"{skill.layer}, archived"
        texts.append(search.SkillText(skill.name, layer, skill.description, skill.text))
    return texts + [
        search.SkillText(one["name"], f"client, at {one['location']}", one["description"], "")
        for one in _client_skills(tx, call)
    ]


def _hit_line(text: search.SkillText) -> str:
    """A hit as the model sees it."""
    shape = {"name": text.name, "layer": text.layer, "description": text.description}
    if text.layer.startswith("L2"):
        shape["text"] = text.body if len(text.body) <= FOUND_CHARS else f"{text.body[:FOUND_CHARS]}…"
    return json.dumps(shape, ensure_ascii=False)


def _client_skills(tx: Tx, call: MemoryCall | SearchCall) -> Sequence[Mapping[str, Any]]:
    """The skills that the caller of the run sent."""
    digest = call.run.client_tools
    return [] if digest is None else client_skills(tx, call.run.key.agent_id, digest)


def _heading(skill: Definition | Skill) -> str:
    """What a skill is, on one line."""
    if isinstance(skill, Definition):
        return f"{skill.name} ({skill.layer}): {skill.description}"
    archived = "" if skill.archived_at is None else ", archived: check that it still holds"
    return f"{skill.name} ({skill.layer}, version {skill.version}{archived}): {skill.description}"


def _file_names(skill: Definition | Skill) -> str:
    """The names of a skill's files, on one line; empty: it has none."""
    names = list_files(skill)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"[files: {', '.join(names[:NAMES_SHOWN])}{more}]" if names else ""


def _sources_of(tx: Tx, skill: Definition | Skill) -> tuple[Source, ...]:
    """The outside sources that a skill of an agent was written from."""
    return tx.of(Skills).version(skill, skill.version).sources if isinstance(skill, Skill) else ()


def _cut(text: str, call: MemoryCall) -> str:
    """A text within the tokens of a result; what is left out is said."""
    if call.counter.count(text) <= call.result_tokens:
        return text
    kept = text[: call.result_tokens * CHARS_PER_TOKEN]
    while call.counter.count(kept) > call.result_tokens:
        kept = kept[: len(kept) * 4 // 5]
    return f"{kept}\n[cut here: {len(text) - len(kept):,} more characters]"
