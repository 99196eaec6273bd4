"""Units of work on skills: written by agents and people, archived, restored, protected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, BlockId, Ids, RunId
from perdure.core.sources import Source
from perdure.core.text.forms import name_form
from perdure.domain.blocks.units import NewBlock, create_block
from perdure.features.skills.admission import Entry, admit, constitution, layers
from perdure.features.skills.catalog import SkillNotFound, file_skills
from perdure.features.skills.tables import Skills
from perdure.features.skills.values import UNUSED_FOR, Evidence, Layer, Skill, SkillVersion, describe
from perdure.storage.tx import Tx

CONSTITUTION = "constitution"
"""The label of the block of L0."""
CONSTITUTION_CHARS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewText:
    """What is to be written to L2 or L3.

    Args:
        description: None: that of the entry of this name, or else the first line of the text.
        evidence: what confirms it; None: nothing does, and `doubt` says why.
        written_by: "agent", or the id of a person.
    """

    layer: Layer
    name: str
    text: str
    description: str | None = None
    evidence: Evidence | None
    doubt: str = ""
    written_by: str
    run_id: RunId | None = None
    sources: Sequence[Source] = ()


def write_skill(tx: Tx, agent: Agent, new: NewText, *, at: datetime) -> tuple[Skill, Skill | None]:
    """Write an entry, or the next version of the one of this name; return it, and what was there before. One that says
    the same already stays as it is; an archived one is restored.

    Raises: AdmissionRefused: a rule refuses it; InvalidInput: there is no such layer.
    """
    if new.layer not in layers():
        raise InvalidInput(f"layer is {new.layer!r:.40}: give L2 for a fact about the environment, L3 for a procedure")
    name, table = name_form(new.name.strip()), tx.of(Skills)
    tx.agents.lock(agent.id)  # else two could add an entry of the same name
    before = table.find(agent.id, name)
    description = describe(new.text, new.description)
    if before is not None and not new.description and before.description != describe(before.text, None):
        description = before.description  # somebody gave it
    entry = Entry(
        layer=new.layer,
        name=name,
        text=new.text,
        description=description,
        by_person=new.written_by != "agent",
        evidence=new.evidence,
        doubt=new.doubt,
        is_protected=before is not None and before.is_protected,
        has_file=name in file_skills(tx, agent).by_name,
        count=table.count(agent.id, new.layer) - (before is not None and before.layer == new.layer),
    )
    admit(entry)
    assert new.evidence is not None
    if before is not None and (before.layer, before.text, before.description) == (new.layer, new.text, description):
        return before, before
    values: dict[str, Any] = {"layer": new.layer, "description": description, "text": new.text}
    version = SkillVersion(
        version=1 if before is None else before.version + 1,
        description=description,
        text=new.text,
        written_by=new.written_by,
        run_id=new.run_id,
        evidence=new.evidence.kind,
        evidence_id=new.evidence.message_id,
        sources=tuple(new.sources),
        created_at=at,
    )
    if before is None:
        skill = Skill(agent_id=agent.id, name=name, fresh_at=at, created_at=at, changed_at=at, **values)
        return table.add(skill, version), None
    changed = replace(before, version=version.version, archived_at=None, fresh_at=at, changed_at=at, **values)
    table.add_version(changed, version)
    return table.put(changed), before


def write_constitution(tx: Tx, agent_id: AgentId, *, author: Author, ids: Ids, at: datetime) -> None:
    """Give an agent its block of L0, which it can't change, if it has none."""
    if tx.blocks.find(agent_id, CONSTITUTION) is None:
        new = NewBlock(
            label=CONSTITUTION,
            value=constitution(),
            limit_chars=CONSTITUTION_CHARS,
            description="What may enter each layer of what you keep about your work. Only a person changes it.",
            read_only=True,
        )
        create_block(tx, BlockId(ids.new("block")), new, author=author, at=at, agent_id=agent_id)


def archive_unused(tx: Tx, agent_id: AgentId, *, at: datetime) -> None:
    """Archive the skills of an agent that nobody used for long."""
    tx.of(Skills).archive_unused(agent_id, before=at - UNUSED_FOR, at=at)


def get_skill(tx: Tx, agent_id: AgentId, name: str) -> Skill:
    """Return the skill without a file of this name. Raises: SkillNotFound."""
    if (found := tx.of(Skills).find(agent_id, name.strip())) is None:
        raise SkillNotFound(name.strip(), [one for _, one, _, _ in tx.of(Skills).index(agent_id)])
    return found


def set_archived(tx: Tx, agent_id: AgentId, name: str, *, archived: bool, at: datetime) -> Skill:
    """Put a skill into the archive, or take it out of there. Raises: SkillNotFound; AdmissionRefused: no room."""
    skill = get_skill(tx, agent_id, name)
    if (skill.archived_at is not None) == archived:
        return skill
    if archived:
        return tx.of(Skills).put(replace(skill, archived_at=at))
    count = tx.of(Skills).count(agent_id, skill.layer)
    admit(
        Entry(
            layer=skill.layer,
            name=skill.name,
            text=skill.text,
            description=skill.description,
            by_person=True,
            evidence=Evidence(kind="person"),
            count=count,
        )
    )
    return tx.of(Skills).put(replace(skill, archived_at=None, fresh_at=at))
