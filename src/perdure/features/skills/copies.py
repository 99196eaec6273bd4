"""The skills of an agent in its copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from perdure.core.ids import AgentId, Ids
from perdure.domain.conversations.agent_copies import CopyPart, HeldRows
from perdure.domain.conversations.copy_values import HiddenText
from perdure.features.skills.tables import Skills
from perdure.features.skills.values import Skill, SkillVersion
from perdure.storage.tx import Tx

VERSIONS_MAX = 50
"""The most versions of a skill that a file holds, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillCopy:
    """A skill with its newest versions, oldest first."""

    skill: Skill
    versions: tuple[SkillVersion, ...]


def copy_skills(tx: Tx, agent_id: AgentId, rows: HeldRows) -> Sequence[SkillCopy]:
    """Return the agent's skills; part of `CopyPart`. Their evidence stays what it was, without the message: a copy's
    messages have ids of their own."""
    found = tx.of(Skills).list(agent_id, archived=None)
    return [
        SkillCopy(
            skill=skill,
            versions=tuple(
                replace(one, evidence_id=None, run_id=None)
                for one in reversed(tx.of(Skills).versions(skill)[:VERSIONS_MAX])
            ),
        )
        for skill in found
    ]


def restore_skills(
    tx: Tx, agent_id: AgentId, copies: Sequence[SkillCopy], rows: HeldRows, ids: Ids, at: datetime
) -> Sequence[str]:
    """Add copied skills to the agent of a copy; return a sentence for each that is left out."""
    left_out = []
    for copy in copies:
        if not copy.versions or tx.of(Skills).find(agent_id, copy.skill.name) is not None:
            left_out.append(f"skill {copy.skill.name!r:.80} is left out: it has no version, or is there twice")
            continue
        first, *rest = copy.versions
        skill = tx.of(Skills).add(replace(copy.skill, agent_id=agent_id, seq=0, fresh_at=at), first)
        for version in rest:
            tx.of(Skills).add_version(skill, version)
    return left_out


def hide_text(copies: Sequence[dict[str, Any]], text: HiddenText) -> None:
    """Take a forgotten text out of the skills of a file, which are still JSON."""
    skills = [one["skill"] for one in copies]
    text.redact(skills, ("name", "description", "text"), lambda row: text.is_old({"created_at": row["changed_at"]}))
    text.redact([version for one in copies for version in one["versions"]], ("description", "text"), text.is_old)


SKILLS = CopyPart(name="skills", kind=Sequence[SkillCopy], hide=hide_text, copy=copy_skills, restore=restore_skills)
