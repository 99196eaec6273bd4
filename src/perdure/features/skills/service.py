"""The skills of an agent: listed, read, found; written, archived, restored and protected by people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Literal

from perdure.core.text.line_diff import unified_diff
from perdure.features.skills.admission import NewEntry
from perdure.features.skills.catalog import file_skills, find_skill, list_skills
from perdure.features.skills.files import list_files
from perdure.features.skills.search import rank_skills
from perdure.features.skills.tables import Skills
from perdure.features.skills.units import archive, get_skill, restore, write_constitution, write_skill
from perdure.features.skills.values import Skill, SkillChange, SkillView
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
            tx.tools.attach(self._id, *(SKILL_TOOLS if learns else SKILL_TOOLS[:-1]))
            if learns:
                write_constitution(tx, self._id, author=author, ids=ids, at=now)

        await self._store.write(enable)

    @reads
    def list(self, tx: Tx, *, archived: bool | None = False) -> Sequence[SkillView]:
        """All skills, by name; `archived`: only those in the archive; None: these, too. Raises: NotFound."""
        return list_skills(tx, tx.agents.get(self._id), archived=archived, with_uses=True)

    @reads
    def problems(self, tx: Tx) -> Sequence[str]:
        """Why files define no skill, each with its path and line. Raises: NotFound."""
        return [str(problem) for problem in file_skills(tx, tx.agents.get(self._id)).problems]

    async def get(self, name: str) -> SkillView:
        """The skill of this name, with the names of its files. Raises: NotFound."""
        check_text("name", name)
        return await with_files(await self._store.read(self._view, name))

    async def search(self, query: str, *, limit: int = 10) -> Sequence[SkillView]:
        """The skills that best fit a query by words and meaning, best first, also archived ones. Raises: NotFound."""
        check_text("query", query)
        check_limit(limit)
        return (await rank_skills(self._ports.search, await self.list(archived=None), query))[:limit]

    async def write(
        self, name: str, text: str, *, layer: Literal["L2", "L3"] = "L3", description: str = ""
    ) -> SkillView:
        """Write a fact about the environment (L2) or a procedure (L3), or its next version, and return it.

        Raises: AdmissionRefused: a rule of its layer refuses it; NotFound.
        """
        for field, value in (("name", name), ("text", text), ("layer", layer), ("description", description)):
            check_text(field, value)
        now = self._ports.clock.now()
        new = NewEntry(layer=layer, name=name, text=text, description=description, written_by=outside().id)
        return await self._change(lambda tx: write_skill(tx, tx.agents.get(self._id), new, at=now)[0])

    @reads
    def versions(self, tx: Tx, name: str) -> Sequence[SkillChange]:
        """The versions of a skill without a file, the newest first, each with what confirmed it, and how its text
        differs from the version before. Raises: NotFound."""
        check_text("name", name)
        tx.agents.model(self._id)
        found = tx.of(Skills).versions(get_skill(tx, self._id, name))
        before = [*(one.text for one in found[1:]), ""]
        return [
            SkillChange(
                **{field.name: getattr(one, field.name) for field in fields(one)}, diff=unified_diff(old, one.text)
            )
            for one, old in zip(found, before, strict=True)
        ]

    async def archive(self, name: str) -> SkillView:
        """Archive a skill without a file: it leaves the index, but is still searched. Raises: NotFound."""
        check_text("name", name)
        now = self._ports.clock.now()
        return await self._change(lambda tx: archive(tx, self._id, name, at=now))

    async def restore(self, name: str, *, version: int | None = None) -> SkillView:
        """Take a skill out of the archive; with `version` it says again what that version said, as a new version.
        Raises: NotFound; AdmissionRefused: there are too many, or the text has a credential."""
        check_text("name", name)
        check_number("version", version)
        now, by = self._ports.clock.now(), outside().id
        return await self._change(lambda tx: restore(tx, self._id, name, version, by=by, at=now))

    async def protect(self, name: str, *, protected: bool = True) -> SkillView:
        """Have only people change a skill, or with False the agent, too. Raises: NotFound."""
        check_text("name", name)
        return await self._change(
            lambda tx: tx.of(Skills).put(replace(get_skill(tx, self._id, name), is_protected=bool(protected)))
        )

    async def _change(self, change: Callable[[Tx], Skill]) -> SkillView:
        """The skill that `change`, a unit of work, returns. Raises: NotFound."""

        def run(tx: Tx) -> SkillView:
            """Change it, in one transaction."""
            tx.agents.model(self._id)
            return self._view(tx, change(tx).name)

        return await with_files(await self._store.write(run))

    def _view(self, tx: Tx, name: str) -> SkillView:
        """The skill of this name, with its uses. Raises: NotFound."""
        view = find_skill(tx, tx.agents.get(self._id), name)
        return replace(view, uses=tx.of(Skills).uses(self._id).get(view.name, view.uses))


async def with_files(view: SkillView) -> SkillView:
    """A skill with the names of its files: outside of a transaction, for a folder may be large."""
    return replace(view, files=tuple(await asyncio.to_thread(list_files, view)))
