"""The tools by which an agent reads, finds and writes skills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perdure.core.agents import Agent
from perdure.core.errors import ToolError
from perdure.core.ids import AgentId
from perdure.core.sources import OUTSIDE, Source
from perdure.core.specs import ToolOutcome
from perdure.core.text.forms import name_form
from perdure.domain.tools.calls import MemoryCall
from perdure.engine.approvals.answers import client_skills
from perdure.features.skills.admission import NewEntry
from perdure.features.skills.catalog import SkillNotFound, find_skill, holder_of, list_skills
from perdure.features.skills.evidence import find_evidence
from perdure.features.skills.files import NAMES_SHOWN, list_files, read_file
from perdure.features.skills.search import rank_skills
from perdure.features.skills.tables import Skills
from perdure.features.skills.units import archive_unused, count_use, write_constitution, write_skill
from perdure.features.skills.values import Layer, SkillView
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from perdure.engine.search.tools import SearchCall

FOUND, FOUND_MAX = 5, 20
FACT_CHARS = 300
"""What a search shows of a fact about the environment."""
CUT = "\n[cut here: the skill is longer than fits]"


async def read_skill(call: SearchCall, name: str, file: str | None = None) -> ToolOutcome:
    """Return the instructions of a skill, or one of its files, and count the use. Raises: ToolError."""

    def find(tx: Tx) -> tuple[AgentId, SkillView]:
        """Return the skill's owner and the skill, maybe one of the client's request. Raises: ToolError."""
        holder = _holder(tx, call)
        try:
            return holder.id, find_skill(tx, holder, name)
        except SkillNotFound as error:
            for client_skill in _client_skills(tx, call):
                if client_skill.name == name.strip():
                    return holder.id, client_skill
            raise ToolError(str(error)) from error

    def count(tx: Tx) -> Sequence[Source]:
        """Count the use, and return what the skill comes from."""
        if call.run.id:  # else a person runs the tool
            count_use(tx, holder_id, skill.name, call.run, at=call.now)
        archive_unused(tx, holder_id, at=call.now)
        return _sources_of(tx, holder_id, [skill])

    holder_id, skill = await call.store.read(find)
    if skill.layer == "client":
        return ToolOutcome(text=f"{skill.name} is on the client's machine: read {skill.path} with your tools.")
    # Not in a transaction: a folder may be large, or on a slow disk.
    text = await asyncio.to_thread(_text_of, skill, (file or "").strip())
    cut = replace(call.budget, tokens=call.budget.tokens - 20)
    shown = text if call.budget.fits(text) else cut.cut(text) + CUT
    return ToolOutcome(text=shown, sources=tuple(await call.store.write(count)))


def start_long_term_update(
    tx: Tx, call: MemoryCall, layer: Layer, name: str, text: str, evidence: str, description: str = ""
) -> ToolOutcome:
    """Write an entry of L2 or L3, or its next version. Raises: AdmissionRefused, InvalidInput."""
    holder = holder_of(tx, call.agent)
    before = tx.of(Skills).find(holder.id, name_form(name.strip()))
    known = [] if before is None else before.text.splitlines()
    added = "\n".join(line for line in text.splitlines() if line not in known)
    found, doubt = find_evidence(tx, call, evidence, added or text)
    new = NewEntry(
        layer=layer,
        name=name,
        text=text,
        description=description,
        evidence=found,
        doubt=doubt,
        written_by="agent" if call.person is None else call.person.id,
        run_id=call.run.id if call.person is None else None,
        sources=[source.source for source in call.passage_sources if source.source.label in OUTSIDE],
    )
    skill, before = write_skill(tx, holder, new, at=call.now)
    write_constitution(tx, holder.id, author=call.author, ids=call.ids, at=call.now)
    archive_unused(tx, holder.id, at=call.now)
    shape = {"name": skill.name, "layer": skill.layer, "version": skill.version, "description": skill.description}
    done = "Stored" if before is None else "It says so already" if before is skill else "Improved"
    if before is not None and before is not skill and before.version == skill.version:
        done = "It says so already, and is out of the archive again"
    return ToolOutcome(text=f"{done}. {json.dumps(shape, ensure_ascii=False)}")


async def search_skills(call: SearchCall, query: str, limit: int = FOUND) -> ToolOutcome:
    """Search the skills of the agent and of its client. Raises: ToolError, TooMany."""
    if not query.strip():
        raise ToolError("the query is empty: say what work it is about")

    def load(tx: Tx) -> tuple[AgentId, Sequence[SkillView]]:
        """Return the owner of the skills, and all of them, archived ones included."""
        holder = _holder(tx, call)
        return holder.id, [*list_skills(tx, holder, archived=None), *_client_skills(tx, call)]

    holder_id, skills = await call.store.read(load)
    hits = await rank_skills(call.search, skills, query)
    shown = hits[: max(1, min(limit, FOUND_MAX))]
    text = call.budget.cut("\n".join(map(_hit_line, shown)) or "No skill found. Try other words.")
    facts = [one for one in shown if one.layer == "L2"]
    return ToolOutcome(text=text, sources=await call.store.read(_sources_of, holder_id, facts))


def _hit_line(skill: SkillView) -> str:
    """A hit as the model sees it: of a fact also its text, of a skill of the client where it is."""
    shape: dict[str, Any] = {"name": skill.name, "layer": skill.layer, "description": skill.description}
    shape |= {"archived": True} if skill.archived_at is not None else {}
    shape |= {"text": skill.text[:FACT_CHARS]} if skill.layer == "L2" else {}
    shape |= {"location": skill.path} if skill.layer == "client" else {}
    return json.dumps(shape, ensure_ascii=False)


def _holder(tx: Tx, call: SearchCall) -> Agent:
    """The agent whose skills the calling one has."""
    return holder_of(tx, tx.conversations.get_agent(call.run.key.agent_id, call.run.conversation_seq))


def _client_skills(tx: Tx, call: SearchCall) -> Sequence[SkillView]:
    """The skills that the caller of the run sent."""
    digest = call.run.client_tools
    shapes = [] if digest is None else client_skills(tx, call.run.key.agent_id, digest)
    return [
        SkillView(name=shape["name"], layer="client", description=shape["description"], path=shape["location"])
        for shape in shapes
    ]


def _text_of(skill: SkillView, file: str) -> str:
    """The text of this file of a skill; empty: its instructions. Raises: ToolError."""
    return read_file(skill, file).decode("utf-8", "replace") if file else _instructions(skill)


def _instructions(skill: SkillView) -> str:
    """Return a skill's text, after a line about it and before one with the names of its files."""
    version = "" if skill.version is None else f", version {skill.version}"
    archived = "" if skill.archived_at is None else ", archived: check that it still holds"
    names = list_files(skill)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    files = f"[files: {', '.join(names[:NAMES_SHOWN])}{more}]" if names else ""
    heading = f"{skill.name} ({skill.layer}{version}{archived}): {skill.description}"
    return "\n\n".join(filter(None, (heading, skill.text.strip(), files)))


def _sources_of(tx: Tx, agent_id: AgentId, skills: Sequence[SkillView]) -> tuple[Source, ...]:
    """The outside sources that skills without files were written from."""
    own = [tx.of(Skills).find(agent_id, skill.name) for skill in skills if skill.version is not None]
    found = [tx.of(Skills).version(one, one.version).sources for one in own if one is not None]
    return tuple(dict.fromkeys(source for sources in found for source in sources))
