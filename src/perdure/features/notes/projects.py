"""Memory that belongs to a project's folder, and the memory behind all projects."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from perdure.core.agents import DEFAULT_AGENT_TYPE, OWN_TAGS, AgentFilter
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.ids import DEFAULT_ORG
from perdure.core.models import EXTRACTIVE
from perdure.core.tools.engine_specs import ARCHIVAL_TOOLS, DEFAULT_TOOLS
from perdure.domain.agents.units import NewAgent
from perdure.domain.blocks.units import NewBlock
from perdure.features.notes.folders import digest, find_project_folder, organisation_folder, state_folder
from perdure.features.notes.nudges import EditCounter
from perdure.features.notes.values import MemoryLevel, Note
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure

PROJECT_TAG, GLOBAL_TAG = f"{OWN_TAGS}project:", f"{OWN_TAGS}global"
"""The beginning of the tag of a project's agent, before the digest of its path; the tag of the agent behind all."""
GLOBAL_NAME = "global-memory"
_NO_NAME = re.compile(r"[^\w '-]+")
NAME_CHARS = 60

PROJECT_BLOCKS = (
    NewBlock(label="project", value="", description="What this project is, how it is built, tested and run."),
)
GLOBAL_BLOCKS = (
    NewBlock(label="human", value="", description="Who the user is, and how they like to work."),
    NewBlock(label="preferences", value="", description="What holds in all projects: style, tools, rules."),
)


async def find_note(
    readers: Sequence[tuple[MemoryLevel, AsyncAgent]], text: str, *, hint: str
) -> tuple[MemoryLevel, AsyncAgent, Note]:
    """Return the note that a text names, as for `AsyncNotes.find`, with the first of these agents that has it. Raises:
    NotFound, with this hint; InvalidInput: it may be one of several."""
    for level, agent in readers:
        with suppress(NotFound):
            return level, agent, await agent.notes.find(text)
    raise NotFound("note", f"{text:.80}", hint=hint)


class ProjectMemory:
    """The agents that remember for a project: its own, and the global one behind it. Both need no model and no key.

    They are made with the first write; until then there may be none.

    Args:
        folder: of the project; None: there is only the global memory.
        name: in place of a folder, for a project that has none on this machine.
        agent: the name or id of an agent that takes the place of the project's.
        over_http: whether it is for the clients of a server, whose files are kept apart from those of this machine.
    Raises: InvalidInput: there is no such folder.
    """

    def __init__(
        self,
        perdure: AsyncPerdure,
        folder: str | Path | None = None,
        *,
        name: str | None = None,
        agent: str | None = None,
        over_http: bool = False,
    ) -> None:
        self._perdure, self._agent_name, self._over_http = perdure, agent, over_http
        self.folder = None if folder is None else find_project_folder(folder)
        self._key = str(self.folder or "") or name or ""

    def state_of(self, agent: AsyncAgent) -> Path:
        """The folder with the files of an agent of this memory, which are deleted with it; it may not exist."""
        return organisation_folder(*self._place) / f"{'http-' if self._over_http else ''}{agent.id}"

    async def edits(self) -> EditCounter:
        """The edits of the project's files since its last note; none without a folder or an agent."""
        if self.folder is not None:  # hooks, which know no agent, count with us
            return EditCounter(state_folder(self.folder, *self._place))
        agent = await self.find()
        return EditCounter(Path(os.devnull) if agent is None else self.state_of(agent))

    @property
    def _place(self) -> tuple[str, str | Path]:
        """Return the organisation (empty: the default one) and the store's address, for `organisation_folder`."""
        app = self._perdure.app
        return "" if app.org_id == DEFAULT_ORG else app.org_id, self._perdure.path or app.settings.store_address

    @property
    def own_level(self) -> MemoryLevel:
        """The level that is written to where nobody names one."""
        return "project" if self._key or self._agent_name else "global"

    async def find(self, level: MemoryLevel | None = None) -> AsyncAgent | None:
        """Return the agent of a level, by default the level that is written to; None: it does not exist yet. Raises:
        NotFound: there is no agent of the given name."""
        level = level or self.own_level
        if level == "project" and self._agent_name is not None:
            return await self._perdure.agent(self._agent_name)
        if (tag := self._tag(level)) is None:
            return None
        # Not kept: somebody may delete the agent while an editor has this memory open, and 0.3 ms are little.
        page = await self._perdure.all_agents.page(AgentFilter(tags=(tag,)), Page(1, ascending=True))
        return AsyncAgent(self._perdure.app, page[0]) if page else None

    async def open(self, level: MemoryLevel | None = None) -> AsyncAgent:
        """Return the agent of a level, by default the level that is written to, created if need be. Raises:
        InvalidInput: there is no project; NotFound: there is no agent of the given name."""
        level = level or self.own_level
        if (found := await self.find(level)) is not None:
            return found
        if (tag := self._tag(level)) is None:
            raise InvalidInput("level is 'project', and there is no project: give its folder, or use 'global'")
        return await self._create(level, tag)

    async def _create(self, level: MemoryLevel, tag: str) -> AsyncAgent:
        """Create the agent of a level. Its name is derived, so a second process finds the agent of the first; if
        somebody else's agent has the name, a number is added."""
        is_global, perdure = level == "global", self._perdure
        name = GLOBAL_NAME if is_global else self._name()
        shown = os.fsencode(self._key).decode("utf-8", "replace")  # a path may be no text
        new = NewAgent(
            name=name,
            model=EXTRACTIVE,
            description="What holds in all projects." if is_global else f"Memory of {shown}",
            blocks=GLOBAL_BLOCKS if is_global else PROJECT_BLOCKS,
            tools=await perdure.tools.load([*DEFAULT_TOOLS[DEFAULT_AGENT_TYPE], *ARCHIVAL_TOOLS]),
            tags=(tag,),
            metadata={} if is_global else {"project": shown},
        )
        for number in itertools.count(2):
            try:
                return AsyncAgent(perdure.app, await perdure.all_agents.add(new, same_name="refuse"))
            except AlreadyExists:
                if (found := await self.find(level)) is not None:
                    return found
                new = replace(new, name=f"{name} {number}")
        raise AssertionError("unreachable: the numbers don't end")

    async def readers(self) -> Sequence[tuple[MemoryLevel, AsyncAgent]]:
        """The agents that there are, the project's first. Raises: NotFound: there is no agent of the given name."""
        levels: Sequence[MemoryLevel] = ("project", "global")
        found = [(level, agent) for level in levels if (agent := await self.find(level)) is not None]
        return found[:1] if len({agent.id for _, agent in found}) == 1 else found  # --agent may name the global one

    def _tag(self, level: MemoryLevel) -> str | None:
        """The tag by which the agent of a level is found; None: there is no project."""
        if level == "global":
            return GLOBAL_TAG
        return PROJECT_TAG + digest(self._key) if self._key else None

    def _name(self) -> str:
        """The name of the project's agent: that of its folder, with characters that a name may have, and a digest."""
        name = _NO_NAME.sub("-", Path(self._key).name).strip(" -'")[:NAME_CHARS] or "project"
        return f"{name}-{digest(self._key)[:6]}"
