"""Protected skills as things that proposals change: a person approves, and the change is a version of the skill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from perdure.core.blocks import Author
from perdure.core.ids import AgentId
from perdure.domain.provenance.policy import MEMORY_OWNER
from perdure.domain.tools.calls import MemoryCall
from perdure.features.skills.admission import NewEntry, admit, layers
from perdure.features.skills.tables import Skills
from perdure.features.skills.units import get_skill, in_place, write_skill
from perdure.features.skills.values import Skill
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillTarget:
    """A skill as a proposal sees it: its name is `id` and `label`, its text `value`."""

    kind: str
    id: str
    label: str
    value: str
    version: int
    limit_chars: int


class SkillTargets:
    """The protected skills of agents, for the feature `proposals`, which asks for what proposals change."""

    name = "skill"

    def find(self, tx: Tx, call: MemoryCall, label: str) -> SkillTarget | None:
        """Return the protected skill of this name of the agent or its companion's agent; None: there is none."""
        owner = next(filter(None, MEMORY_OWNER(tx, call.agent)), call.agent)
        skill = tx.of(Skills).find(owner.id, label.strip())
        if skill is None or not skill.is_protected or tx.blocks.find(owner.id, label.strip()) is not None:
            return None
        return self._target(skill)

    def get(self, tx: Tx, agent_id: AgentId, target_id: str) -> SkillTarget:
        """Return the skill as it is now. Raises: NotFound."""
        return self._target(get_skill(tx, agent_id, target_id))

    def check(self, tx: Tx, agent_id: AgentId, target_id: str, value: str) -> None:
        """Check a text by the rules for what agents write, but that it has to be confirmed: a person decides about it.
        Raises: NotFound, AdmissionRefused."""
        skill = get_skill(tx, agent_id, target_id)
        new = NewEntry(layer=skill.layer, name=skill.name, text=value, written_by="agent")
        admit(replace(in_place(tx, tx.agents.get(agent_id), new, skill), is_protected=False))

    def put(self, tx: Tx, agent_id: AgentId, target_id: str, value: str, author: Author, at: datetime) -> int:
        """Give the skill this text, and return its version then. Raises: NotFound, AdmissionRefused."""
        skill = get_skill(tx, agent_id, target_id)
        new = NewEntry(layer=skill.layer, name=skill.name, text=value, written_by=author.id)
        return write_skill(tx, tx.agents.get(agent_id), new, at=at)[0].version

    def _target(self, skill: Skill) -> SkillTarget:
        """A skill as a target."""
        same, limit = {"id": skill.name, "label": skill.name, "value": skill.text}, layers()[skill.layer].limit_chars
        return SkillTarget(kind=self.name, version=skill.version, limit_chars=limit, **same)
