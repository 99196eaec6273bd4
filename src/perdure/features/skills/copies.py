"""The skills of an agent in its copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from perdure.core.agents import Agent
from perdure.core.ids import AgentId, Ids
from perdure.core.text.forms import name_form
from perdure.domain.conversations.agent_copies import CopyPart, FileRows
from perdure.domain.conversations.copy_values import HiddenText
from perdure.features.skills.admission import AdmissionRefused, NewEntry, admit
from perdure.features.skills.tables import Skills
from perdure.features.skills.units import in_place
from perdure.features.skills.values import Skill, SkillVersion, describe
from perdure.storage.tx import Tx

VERSIONS_MAX = 50
"""The most versions of a skill that a file holds, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillCopy:
    """A skill with its newest versions, oldest first."""

    skill: Skill
    versions: tuple[SkillVersion, ...]


def copy_skills(tx: Tx, agent_id: AgentId, rows: FileRows) -> Sequence[SkillCopy]:
    """Return the agent's skills; part of `CopyPart`. Their evidence stays what it was, without the message: a copy's
    messages have ids of their own."""
    found = tx.of(Skills).list(agent_id, archived=None)
    return [
        SkillCopy(
            skill=skill,
            versions=tuple(
                replace(version, evidence_id=None, run_id=None)
                for version in reversed(tx.of(Skills).versions(skill)[:VERSIONS_MAX])
            ),
        )
        for skill in found
    ]


def restore_skills(
    tx: Tx, agent_id: AgentId, copies: Sequence[SkillCopy], rows: FileRows, ids: Ids, at: datetime
) -> Sequence[str]:
    """Add copied skills to the agent of a copy; return a sentence for each that is left out, or put into the archive,
    because a rule refuses it: a file may say anything."""
    agent, lines = tx.agents.get(agent_id), list[str]()
    for copy in copies:
        name = name_form(copy.skill.name.strip())
        label, numbers = f"skill {name!r:.80}", [one.version for one in copy.versions]
        if not numbers or tx.of(Skills).find(agent_id, name) is not None:
            lines.append(f"{label} is left out: it has no version, or is there twice")
            continue
        if numbers[0] < 1 or numbers != sorted({*numbers}):
            lines.append(f"{label} is left out: the numbers of its versions are wrong")
            continue
        problems = [_problem(tx, agent, replace(copy.skill, name=name), one, by="a person") for one in copy.versions]
        if problems[-1]:
            lines.append(f"{label} is left out: {problems[-1]}")
            continue
        if any(problems):
            lines.append(f"{label}, {sum(map(bool, problems))} older: left out: {next(filter(None, problems))}")
        versions = [one for one, problem in zip(copy.versions, problems, strict=True) if not problem]
        newest = versions[-1]
        skill = replace(
            copy.skill,
            agent_id=agent_id,
            seq=0,
            name=name,
            fresh_at=at,
            version=newest.version,
            text=newest.text,
            description=describe(newest.text, newest.description),
        )
        if skill.archived_at is None and (problem := _problem(tx, agent, skill, newest, by="agent")):
            lines.append(f"{label} is put into the archive, from where you may restore it: {problem}")
            skill = replace(skill, archived_at=at)
        skill = tx.of(Skills).add(skill, versions[0])
        for version in versions[1:]:
            tx.of(Skills).add_version(skill, version)
    return lines


def _problem(tx: Tx, agent: Agent, skill: Skill, version: SkillVersion, *, by: str) -> str:
    """Why the rules refuse a copied version; empty: they do not. `by`: "agent", or somebody, for whom fewer hold."""
    new = NewEntry(
        layer=skill.layer, name=skill.name, text=version.text, description=version.description, written_by=by
    )
    new = in_place(tx, agent, new, None)
    try:
        admit(new if skill.archived_at is None else replace(new, count=0))
    except AdmissionRefused as error:
        return str(error).partition(". ")[0]
    return ""


def hide_text(copies: Sequence[dict[str, Any]], text: HiddenText) -> None:
    """Take a forgotten text out of the skills of a file, which are still JSON."""
    skills = [one["skill"] for one in copies]
    text.redact(skills, ("name", "description", "text"), lambda row: text.is_old({"created_at": row["changed_at"]}))
    text.redact([version for copy in copies for version in copy["versions"]], ("description", "text"), text.is_old)


SKILLS = CopyPart(name="skills", kind=Sequence[SkillCopy], hide=hide_text, copy=copy_skills, restore=restore_skills)
