"""The skills of an agent on the page of its memory."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.text.reprs import attributes
from perdure.features.skills.tables import Skills
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, agent_id_of, form_of, is_number

_VERSION = ("version", "description", "diff", "written_by", "run_id", "evidence", "evidence_id", "created_at")
_FIELDS = ("name", "layer", "description", "version", "is_protected", "archived_at", "changed_at", "path", "text")


async def load(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """Return the skills of the page's agent, archived ones last, that of the query with its versions; none for an agent
    that can't read skills and has none."""
    agent = library.agent_of(agent_id_of(request))
    tools = [tool.name for tool in await agent.tools.list()]
    if "read_skill" not in tools and not await library.app.store.read(lambda tx: tx.of(Skills).index(agent.id)):
        return []
    found = [skill for archived in (False, True) for skill in await agent.skills.list(archived=archived)]
    chosen = request.query_params.get("skill")
    shapes = []
    for one in found:
        versions = await agent.skills.versions(one.name) if one.name == chosen and one.version else ()
        shape = attributes(one, *_FIELDS) | attributes(one.uses, "uses", "successes")
        shapes.append(shape | {"versions": [attributes(version, *_VERSION) for version in versions]})
    return shapes


async def archive_skill(request: Request, library: AsyncPerdure) -> Notice:
    """Put a skill into the archive."""
    await library.agent_of(agent_id_of(request)).skills.archive(request.path_params["name"])
    return Notice("The skill is archived: only searches find it.")


async def restore_skill(request: Request, library: AsyncPerdure) -> Notice:
    """Take a skill out of the archive, or write what an earlier version said again."""
    text = (await form_of(request)).get("version", "")
    if text and not is_number(text):
        raise InvalidInput(f"{text!r:.40} is not a version's number")
    version = int(text) if text else None
    await library.agent_of(agent_id_of(request)).skills.restore(request.path_params["name"], version=version)
    return Notice("The skill is back." if version is None else f"The skill says again what version {version} said.")


async def protect_skill(request: Request, library: AsyncPerdure) -> Notice:
    """Have only people change a skill, or the agent, too."""
    on = (await form_of(request)).get("on") == "yes"
    await library.agent_of(agent_id_of(request)).skills.protect(request.path_params["name"], protected=on)
    return Notice("Only people can change the skill now." if on else "The agent may change the skill now.")


SECTION = Section(
    name="skills",
    load=load,
    actions={
        "/agents/{agent_id}/memory/skills/{name}/archive": archive_skill,
        "/agents/{agent_id}/memory/skills/{name}/restore": restore_skill,
        "/agents/{agent_id}/memory/skills/{name}/protect": protect_skill,
    },
)
