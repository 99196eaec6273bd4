"""The skills of an agent: listed, read, found; written, archived, restored and protected by people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from perdure.core.ids import AgentId
from perdure.features.plugins.definitions import Definition
from perdure.features.skills.catalog import file_skills, find_skill, own_skills
from perdure.features.skills.files import list_files
from perdure.features.skills.search import SkillText, rank_texts
from perdure.features.skills.tables import Skills
from perdure.features.skills.units import NewText, get_skill, set_archived, write_constitution, write_skill
from perdure.features.skills.values import NO_USES, Evidence, Skill, SkillPage, SkillSummary, SkillUses, SkillVersion
from perdure.library.parts.checks import check_limit, check_number, check_text, outside
from perdure.library.parts.part import AsyncPart, reads
from perdure.storage.tx import Tx

SKILL_TOOLS = ("read_skill", "search_skills", "run_skill_script", "start_long_term_update")
"""The tools of an agent that uses skills and keeps what it learns."""


class AsyncSkills(AsyncPart):
    """The skills of one agent: those with files, from six layers, and those that it or people wrote."""

    async def enable(self, *, learns: bool = True) -> None:
        """Give the agent the tools of skills, and the block of rules that says what it may keep. Enabling twice is no
        error. `learns`: whether it writes skills; else it only reads them. Raises: NotFound."""
        author, ids, now = outside(), self._ports.ids, self._ports.clock.now()

        def enable(tx: Tx) -> None:
            """Attach the tools, and create the block."""
            tx.agents.model(self._id)
            for name in SKILL_TOOLS if learns else SKILL_TOOLS[:-1]:
                tx.tools.attach(self._id, name)
            if learns:
                write_constitution(tx, self._id, author=author, ids=ids, at=now)

        await self._store.write(enable)

    @reads
    def list(self, tx: Tx, *, archived: bool | None = False) -> Sequence[SkillSummary]:
        """All skills, by name; `archived`: only those in the archive; None: these, too. Raises: NotFound."""
        agent = tx.agents.get(self._id)
        uses = tx.of(Skills).uses(agent.id)
        files = (
            []
            if archived
            else [_file_shape(one, uses.get(one.name)) for one in file_skills(tx, agent).by_name.values()]
        )
        own = [_own_shape(one, uses.get(one.name)) for one in own_skills(tx, agent, archived=archived)]
        return sorted([*files, *own], key=lambda one: one.name)

    @reads
    def problems(self, tx: Tx) -> Sequence[str]:
        """Why files define no skill, each with its path and line. Raises: NotFound."""
        return [str(one) for one in file_skills(tx, tx.agents.get(self._id)).problems]

    @reads
    def get(self, tx: Tx, name: str) -> SkillPage:
        """The skill of this name with its instructions. Raises: NotFound."""
        check_text("name", name)
        skill = find_skill(tx, tx.agents.get(self._id), name)
        return _page_of(tx, self._id, skill)

    async def search(self, query: str, *, limit: int = 10) -> Sequence[SkillSummary]:
        """The skills that best fit a query by words and meaning, best first, also archived ones. Raises: NotFound."""
        check_text("query", query)
        check_limit(limit)
        shapes = [one for archived in (False, True) for one in await self.list(archived=archived)]

        def load(tx: Tx) -> Sequence[SkillText]:
            """The texts of these."""
            agent = tx.agents.get(self._id)
            files = file_skills(tx, agent).by_name
            texts = {name: one.body for name, one in files.items()}
            texts |= {one.name: one.text for one in own_skills(tx, agent, archived=None)}
            return [SkillText(one.name, one.layer, one.description, texts.get(one.name, "")) for one in shapes]

        hits = await rank_texts(self._ports.search, await self._store.read(load), query)
        return [shapes[place] for place in hits[:limit]]

    async def write(
        self, name: str, text: str, *, layer: Literal["L2", "L3"] = "L3", description: str | None = None
    ) -> SkillPage:
        """Write a fact about the environment (L2) or a procedure (L3), or its next version, and return it.

        Raises: AdmissionRefused: a rule of its layer refuses it; NotFound.
        """
        for field, value in (("name", name), ("text", text), ("layer", layer)):
            check_text(field, value)
        author, now = outside(), self._ports.clock.now()
        new = NewText(
            layer=layer,
            name=name,
            text=text.strip(),
            description=description,
            evidence=Evidence(kind="person"),
            written_by=author.id,
        )

        def write(tx: Tx) -> SkillPage:
            """Write it."""
            skill, _ = write_skill(tx, tx.agents.get(self._id), new, at=now)
            return _page_of(tx, self._id, skill)

        return await self._store.write(write)

    @reads
    def versions(self, tx: Tx, name: str) -> Sequence[SkillVersion]:
        """The versions of a skill without a file, the newest first, each with what confirmed it. Raises: NotFound."""
        check_text("name", name)
        tx.agents.model(self._id)
        return tx.of(Skills).versions(get_skill(tx, self._id, name))

    async def archive(self, name: str) -> SkillPage:
        """Put a skill without a file into the archive: it leaves the index, and searches still find it. Raises:
        NotFound."""
        now = self._ports.clock.now()
        return await self._change(name, lambda tx: set_archived(tx, self._id, name, archived=True, at=now))

    async def restore(self, name: str, *, version: int | None = None) -> SkillPage:
        """Take a skill out of the archive; with `version` it says again what that version said, as a new version.
        Raises: NotFound; AdmissionRefused: there are too many, or the text has a credential."""
        check_number("version", version)
        now, author = self._ports.clock.now(), outside()

        def restore(tx: Tx) -> Skill:
            """The skill as it is then."""
            skill = set_archived(tx, self._id, name, archived=False, at=now)
            if version is None:
                return skill
            old = tx.of(Skills).version(skill, version)
            new = NewText(
                layer=skill.layer,
                name=skill.name,
                text=old.text,
                description=old.description,
                evidence=Evidence(kind=old.evidence, message_id=old.evidence_id),
                written_by=author.id,
                sources=old.sources,
            )
            return write_skill(tx, tx.agents.get(self._id), new, at=now)[0]

        return await self._change(name, restore)

    async def protect(self, name: str, *, protected: bool = True) -> SkillPage:
        """Have only people change a skill, or with False the agent, too. Raises: NotFound."""
        return await self._change(
            name, lambda tx: tx.of(Skills).put(replace(get_skill(tx, self._id, name), is_protected=protected))
        )

    async def _change(self, name: str, change: Callable[[Tx], Skill]) -> SkillPage:
        """Return the skill that `change`, a unit of work, returns, as a page. Raises: NotFound."""
        check_text("name", name)

        def run(tx: Tx) -> SkillPage:
            """Change it, in one transaction."""
            tx.agents.model(self._id)
            return _page_of(tx, self._id, change(tx))

        return await self._store.write(run)


def _page_of(tx: Tx, agent_id: AgentId, skill: Definition | Skill) -> SkillPage:
    """A skill with its instructions."""
    uses = tx.of(Skills).uses_of(agent_id, skill.name)
    shape = _own_shape(skill, uses) if isinstance(skill, Skill) else _file_shape(skill, uses)
    text = skill.text if isinstance(skill, Skill) else skill.body
    fields = {name: getattr(shape, name) for name in SkillSummary.__slots__}
    return SkillPage(**fields, text=text, files=tuple(list_files(skill)))


def _file_shape(one: Definition, uses: SkillUses | None) -> SkillSummary:
    """A skill with a file as lists show it."""
    return SkillSummary(
        name=one.name,
        layer=one.layer,
        description=one.description,
        is_protected=bool(one.fields.get("protected")),
        path="" if one.path is None else str(one.path),
        uses=uses or NO_USES,
    )


def _own_shape(one: Skill, uses: SkillUses | None) -> SkillSummary:
    """A skill without a file as lists show it."""
    return SkillSummary(
        name=one.name,
        layer=one.layer,
        description=one.description,
        version=one.version,
        is_protected=one.is_protected,
        archived_at=one.archived_at,
        changed_at=one.changed_at,
        uses=uses or NO_USES,
    )
