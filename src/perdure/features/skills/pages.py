"""The skills of an agent on the page of its memory."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from perdure.core.text.reprs import attributes
from perdure.features.skills.tables import Skills
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, agent_id_of

_FIELDS = ("name", "layer", "description", "version", "is_protected", "archived_at", "changed_at", "path", "text")


async def load(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """Return the skills of the page's agent, archived ones last; none for one that can't read skills and has none."""
    agent = library.agent_of(agent_id_of(request))
    tools = [tool.name for tool in await agent.tools.list()]
    if "read_skill" not in tools and not await library.app.store.read(lambda tx: tx.of(Skills).index(agent.id)):
        return []
    found = [one for archived in (False, True) for one in await agent.skills.list(archived=archived)]
    return [attributes(one, *_FIELDS) | attributes(one.uses, "uses", "successes") for one in found]


async def archive_skill(request: Request, library: AsyncPerdure) -> Notice:
    """Put a skill into the archive."""
    await library.agent_of(agent_id_of(request)).skills.archive(request.path_params["name"])
    return Notice("The skill is archived: only searches find it.")


async def restore_skill(request: Request, library: AsyncPerdure) -> Notice:
    """Take a skill out of the archive."""
    await library.agent_of(agent_id_of(request)).skills.restore(request.path_params["name"])
    return Notice("The skill is back.")


SECTION = Section(
    name="skills",
    load=load,
    actions={
        "/agents/{agent_id}/memory/skills/{name}/archive": archive_skill,
        "/agents/{agent_id}/memory/skills/{name}/restore": restore_skill,
    },
)
