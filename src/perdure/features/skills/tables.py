"""`tx.of(Skills)`: the skills that agents and people wrote, their versions, and the runs that used a skill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.ids import AgentId
from perdure.core.sources import Source
from perdure.core.text.forms import name_form
from perdure.features.skills.values import Skill, SkillUses, SkillVersion
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.table import OWN_AGENT, Table, first, own_agent

_SOURCES = row_format.Codec(
    lambda sources: row_format.dump([[source.label, source.name] for source in sources]),
    lambda text: tuple(Source(label, name) for label, name in row_format.load(text)),
)
_SKILL = row_format.RowFormat(Skill)
_VERSION = row_format.RowFormat(SkillVersion, {_SOURCES: "sources"})
_CHANGES = "layer, description, text, version, is_protected, archived_at, fresh_at, changed_at"
_ONE = f"agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}"


class Skills(Table):
    """The skills of an organisation's agents, in one transaction."""

    def add(self, skill: Skill, version: SkillVersion) -> Skill:
        """Add a skill with its first version, and return it with its number. Raises: NotFound: the agent."""
        own = own_agent(self._db, self._org_id, skill.agent_id, lock=True)
        skill = replace(skill, name=name_form(skill.name), seq=self._next("skills", "seq", agent_id=own))
        self._run(row_format.insert_into("skills", _SKILL.columns), **_SKILL.params(skill))
        self.add_version(skill, version)
        return skill

    def add_version(self, skill: Skill, version: SkillVersion) -> None:
        """Add a version of a skill that is there."""
        own = own_agent(self._db, self._org_id, skill.agent_id)
        sql = row_format.insert_into("skill_versions", f"agent_id, skill_seq, {_VERSION.columns}")
        self._run(sql, **_VERSION.params(version) | {"agent_id": own, "skill_seq": skill.seq})

    def put(self, skill: Skill) -> Skill:
        """Store the changes of a skill, and return it. Raises: NotFound."""
        sql = f"UPDATE skills SET {row_format.assignments(_CHANGES)} WHERE {_ONE}"
        values = _SKILL.params(skill, f"{_CHANGES}, agent_id, seq")
        self._change_one("skill", skill.name, sql, **values)
        return skill

    def find(self, agent_id: AgentId, name: str) -> Skill | None:
        """Return the agent's skill of this name; None: it has none."""
        sql = f"SELECT {_SKILL.columns} FROM skills WHERE agent_id = :agent_id AND name = :name AND {OWN_AGENT}"
        return self._one(_SKILL, sql, agent_id=agent_id, name=row_format.stored_key(name))

    def list(self, agent_id: AgentId, *, archived: bool | None = False) -> Sequence[Skill]:
        """List the skills of an agent by name; `archived`: only archived or only other ones; None: both."""
        where = Conditions("agent_id = :agent_id", OWN_AGENT)
        if archived is not None:
            where.add(f"archived_at IS {'NOT NULL' if archived else 'NULL'}")
        return self._all(_SKILL, f"SELECT {_SKILL.columns} FROM skills WHERE {where} ORDER BY name", agent_id=agent_id)

    def index(self, agent_id: AgentId) -> Sequence[tuple[int, str, str, str]]:
        """List (number, name, layer, description) of the skills that are not archived, the newest first."""
        sql = "SELECT seq, name, layer, description FROM skills WHERE agent_id = :agent_id AND archived_at IS NULL"
        rows = self._rows(f"{sql} AND {OWN_AGENT} ORDER BY seq DESC", agent_id=agent_id)
        return [(seq, row_format.restore(name), layer, row_format.restore(text)) for seq, name, layer, text in rows]

    def archive_unused(self, agent_id: AgentId, *, before: datetime, at: datetime) -> None:
        """Archive the agent's skills that are not protected and were fresh last before a time."""
        condition = "agent_id = :agent_id AND archived_at IS NULL AND is_protected = 0 AND fresh_at < :before"
        values = {"before": row_format.iso(before), "at": row_format.iso(at)}
        self._run(f"UPDATE skills SET archived_at = :at WHERE {condition} AND {OWN_AGENT}", agent_id=agent_id, **values)

    def versions(self, skill: Skill) -> Sequence[SkillVersion]:
        """List the versions of a skill, the newest first."""
        where = f"agent_id = :agent_id AND skill_seq = :seq AND {OWN_AGENT}"
        sql = f"SELECT {_VERSION.columns} FROM skill_versions WHERE {where} ORDER BY version DESC"
        return self._all(_VERSION, sql, agent_id=skill.agent_id, seq=skill.seq)

    def version(self, skill: Skill, number: int) -> SkillVersion:
        """Return a version of a skill. Raises: NotFound."""
        where = f"agent_id = :agent_id AND skill_seq = :seq AND version = :version AND {OWN_AGENT}"
        sql = f"SELECT {_VERSION.columns} FROM skill_versions WHERE {where}"
        found = self._all(_VERSION, sql, agent_id=skill.agent_id, seq=skill.seq, version=number)
        return first(found, "version", f"{skill.name} {number}")

    def add_use(self, agent_id: AgentId, name: str, run_seq: int, *, at: datetime) -> None:
        """Note that a run read a skill; a run that reads it again is one use. The agent's own skill is fresh then."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        values = {"agent_id": own, "name": row_format.stored_key(name), "at": row_format.iso(at)}
        known = "SELECT 1 FROM skill_uses WHERE agent_id = :agent_id AND name = :name AND run_seq = :run_seq"
        if not self._rows(known, run_seq=run_seq, **values):
            self._run(
                "INSERT INTO skill_uses (agent_id, seq, name, run_seq, used_at)"
                " VALUES (:agent_id, :seq, :name, :run_seq, :at)",
                seq=self._next("skill_uses", "seq", agent_id=own),
                run_seq=run_seq,
                **values,
            )
        self._run("UPDATE skills SET fresh_at = :at WHERE agent_id = :agent_id AND name = :name", **values)

    def uses(self, agent_id: AgentId) -> Mapping[str, SkillUses]:
        """Return name -> uses of the skills, also of files, that runs of an agent read."""
        rows = self._rows(
            "SELECT u.name, COUNT(*), SUM(CASE WHEN r.stop_reason = 'end_turn' THEN 1 ELSE 0 END), MAX(u.used_at)"
            " FROM skill_uses u LEFT JOIN runs r ON r.agent_id = u.agent_id AND r.seq = u.run_seq"
            f" WHERE u.agent_id = :agent_id AND {OWN_AGENT} GROUP BY u.name",
            agent_id=agent_id,
        )
        return {
            row_format.restore(name): SkillUses(uses=uses, successes=int(done), last_at=row_format.from_iso(last))
            for name, uses, done, last in rows
        }
