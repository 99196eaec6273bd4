"""Units of work on skills: written by agents and people, archived, restored."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.ids import AgentId, BlockId, Ids
from perdure.core.runs import Run
from perdure.core.text.forms import name_form
from perdure.domain.blocks.units import NewBlock, create_block
from perdure.features.skills.admission import NewEntry, admit, constitution, layers
from perdure.features.skills.catalog import SkillNotFound, file_skills, tool_names
from perdure.features.skills.tables import Skills
from perdure.features.skills.values import UNUSED_FOR, Skill, SkillVersion, describe, split_skill
from perdure.storage.tx import Tx

CONSTITUTION = "constitution"
"""The label of the block of L0."""
CONSTITUTION_CHARS = 10_000


def write_skill(tx: Tx, agent: Agent, new: NewEntry, *, at: datetime) -> tuple[Skill, Skill | None]:
    """Write an entry, or the next version of the one of this name; return it, and what was there before. One that says
    the same already stays as it is; an archived one is restored.

    Raises: AdmissionRefused: a rule refuses it; InvalidInput: there is no such layer; AlreadyExists: a skill with a
    file has the name.
    """
    if new.layer not in layers():
        raise InvalidInput(f"layer is {new.layer!r:.40}: give L2 for a fact about the environment, L3 for a procedure")
    name, (given, text), table = name_form(new.name.strip()), split_skill(new.text), tx.of(Skills)
    new = new if new.description.strip() else replace(new, description=given)
    tx.agents.lock(agent.id)  # else two could add an entry of the same name
    before = table.find(agent.id, name)
    description = describe(text, new.description)
    if before is not None and not new.description and before.description != describe(before.text):
        description = before.description  # somebody gave it
    new = in_place(tx, agent, replace(new, name=name, text=text, description=description), before)
    if new.has_file and new.by_person:  # of what an agent writes a rule says it
        raise AlreadyExists("skill", name, helps="it has a file, so choose another name")
    admit(new)
    assert new.evidence is not None
    values: dict[str, Any] = {"layer": new.layer, "description": description, "text": text}
    if before is not None and all(getattr(before, field) == value for field, value in values.items()):
        is_archived = before.archived_at is not None
        return table.put(replace(before, archived_at=None, fresh_at=at)) if is_archived else before, before
    version = SkillVersion(
        version=1 if before is None else before.version + 1,
        description=description,
        text=text,
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


def in_place(tx: Tx, agent: Agent, new: NewEntry, before: Skill | None) -> NewEntry:
    """Return an entry with what the rules ask about its place. `before`: the agent's entry of this name."""
    return replace(
        new,
        is_protected=before is not None and before.is_protected,
        has_file=not file_skills(tx, agent).is_free(new.name),
        is_tool=new.name in tool_names(tx, agent, [new.name]),
        count=sum(layer == new.layer and new.name != one for _, one, layer, _ in tx.of(Skills).index(agent.id)),
    )


def write_constitution(tx: Tx, agent_id: AgentId, *, author: Author, ids: Ids, at: datetime) -> None:
    """Give an agent the read-only block of rules for skills (L0), if it has none."""
    if tx.blocks.find(agent_id, CONSTITUTION) is None:
        new = NewBlock(
            label=CONSTITUTION,
            value=constitution(),
            limit_chars=CONSTITUTION_CHARS,
            description="What may enter each layer of what you keep about your work. Only a person changes it.",
            read_only=True,
        )
        create_block(tx, BlockId(ids.new("block")), new, author=author, at=at, agent_id=agent_id)


def count_use(tx: Tx, agent_id: AgentId, name: str, run: Run, *, at: datetime) -> None:
    """Count that a run used a skill of an agent; one of a helper counts as the agent's run that waits for it."""
    with suppress(NotFound):  # that run was deleted
        while run.key.agent_id != agent_id and run.options.caller is not None:
            run = tx.runs.get(run.options.caller)
    if run.key.agent_id == agent_id:
        tx.of(Skills).add_use(agent_id, name, run.key.seq, at=at)


def archive_unused(tx: Tx, agent_id: AgentId, *, at: datetime) -> None:
    """Archive the skills of an agent that nobody used for long."""
    tx.of(Skills).archive_unused(agent_id, before=at - UNUSED_FOR, at=at)


def get_skill(tx: Tx, agent_id: AgentId, name: str) -> Skill:
    """Return the skill without a file of this name. Raises: SkillNotFound."""
    if (found := tx.of(Skills).find(agent_id, name.strip())) is None:
        raise SkillNotFound(name.strip(), [one for _, one, _, _ in tx.of(Skills).index(agent_id)])
    return found


def archive(tx: Tx, agent_id: AgentId, name: str, *, at: datetime) -> Skill:
    """Put a skill into the archive. Raises: SkillNotFound."""
    skill = get_skill(tx, agent_id, name)
    return skill if skill.archived_at is not None else tx.of(Skills).put(replace(skill, archived_at=at))


def restore(tx: Tx, agent_id: AgentId, name: str, version: int | None, *, by: str, at: datetime) -> Skill:
    """Take a skill out of the archive; with a version it says again what that said, as a new version by this person.
    Raises: SkillNotFound, NotFound; AdmissionRefused: there is no room, or it breaks another rule."""
    skill, agent = get_skill(tx, agent_id, name), tx.agents.get(agent_id)
    old = tx.of(Skills).version(skill, skill.version if version is None else version)
    again = NewEntry(
        layer=skill.layer,
        name=skill.name,
        text=old.text,
        description=old.description,
        written_by=by,
        sources=old.sources,
    )
    return write_skill(tx, agent, again, at=at)[0]
