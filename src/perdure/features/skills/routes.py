"""The skills of an agent: list, read, search; write, archive, restore and protect. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query

from perdure.features.skills.values import DESCRIPTION_CHARS, SkillChange, SkillView
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, keywords
from perdure.server.wire.http import Router, ThisAgent
from perdure.server.wire.shapes import WireShape, computed


class SkillIn(WireRequest):
    """A skill to write, or its next version."""

    text: Annotated[str, keywords(pattern=FILLED, maxLength=30_000)]
    layer: Literal["L2", "L3"] = "L3"
    description: Annotated[str, keywords(maxLength=DESCRIPTION_CHARS)] = ""


class SkillRestoreIn(WireRequest):
    """Which version is to be brought back; without one the skill as it is."""

    version: Annotated[int, keywords(minimum=1)] | None = None


class SkillProtectIn(WireRequest):
    """Whether only people change a skill."""

    protected: bool = True


_FIELDS = "name layer description version is_protected archived_at changed_at path uses.uses uses.successes"


class SkillShape(WireShape, of=SkillView, fields=_FIELDS, last_used_at="uses.last_at"):
    """A skill as lists show it: `uses` are the runs that read it, `successes` those of them that came to their end."""


class SkillPageShape(WireShape, of=SkillView, fields=f"{_FIELDS} text", last_used_at="uses.last_at"):
    """A skill with its instructions, and the names of its other files."""

    files: list[str] = computed(lambda skill: list(skill.files))


_VERSION = "version description text diff written_by run_id evidence evidence_id created_at"


class SkillVersionShape(WireShape, of=SkillChange, fields=_VERSION):
    """A version of a skill; `diff` is unified, from the text of the version before. `evidence_id`: the message with the
    tool's result, or of the user, that confirmed it."""


class SkillProblems(WireShape):
    """Why files define no skill, each with its path and line."""

    problems: list[str]


router = Router(tags=["skills"])

_Name = Annotated[str, Path(min_length=1, max_length=200, description="The skill's name.")]
_NewName = Annotated[str, keywords(pattern=r"^\w[\w.-]{0,63}$"), Path(description="The skill's name.")]


@router.get("/v1/agents/{agent_id}/skills")
async def list_skills(
    agent: ThisAgent, archived: Annotated[bool, Query(description="Those in the archive.")] = False
) -> list[SkillShape]:
    """List the skills of an agent by name: those with files, and those that it or people wrote."""
    return [SkillShape.make(skill) for skill in await agent.skills.list(archived=archived)]


@router.get("/v1/agents/{agent_id}/skills/search")
async def search_skills(
    agent: ThisAgent,
    query: Annotated[str, Query(description="What to look for; an empty text finds nothing.")],
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[SkillShape]:
    """Search skills by words and meaning, best first, also archived ones."""
    return [SkillShape.make(one) for one in await agent.skills.search(query, limit=limit)]


@router.get("/v1/agents/{agent_id}/skills/problems")
async def list_problems(agent: ThisAgent) -> SkillProblems:
    """List the files that define no skill, and why."""
    return SkillProblems(problems=[*await agent.skills.problems()])


@router.post("/v1/agents/{agent_id}/skills/enable")
async def enable_skills(agent: ThisAgent) -> list[SkillShape]:
    """Give an agent the tools of skills, and the block of rules for what it may keep; answer with its skills."""
    await agent.skills.enable()
    return [SkillShape.make(skill) for skill in await agent.skills.list()]


@router.get("/v1/agents/{agent_id}/skills/{skill_name}")
async def get_skill(agent: ThisAgent, skill_name: _Name) -> SkillPageShape:
    """Get a skill with its instructions."""
    return SkillPageShape.make(await agent.skills.get(skill_name))


@router.put("/v1/agents/{agent_id}/skills/{skill_name}")
async def write_skill(agent: ThisAgent, skill_name: _NewName, body: SkillIn) -> SkillPageShape:
    """Write a skill, or its next version."""
    skill = await agent.skills.write(skill_name, body.text, layer=body.layer, description=body.description)
    return SkillPageShape.make(skill)


@router.get("/v1/agents/{agent_id}/skills/{skill_name}/versions")
async def list_versions(agent: ThisAgent, skill_name: _Name) -> list[SkillVersionShape]:
    """List the versions of a skill, the newest first, each with what confirmed it."""
    return [SkillVersionShape.make(version) for version in await agent.skills.versions(skill_name)]


@router.post("/v1/agents/{agent_id}/skills/{skill_name}/archive")
async def archive_skill(agent: ThisAgent, skill_name: _Name) -> SkillPageShape:
    """Put a skill into the archive: it leaves the index, and searches still find it."""
    return SkillPageShape.make(await agent.skills.archive(skill_name))


@router.post("/v1/agents/{agent_id}/skills/{skill_name}/restore")
async def restore_skill(agent: ThisAgent, skill_name: _Name, body: SkillRestoreIn) -> SkillPageShape:
    """Take a skill out of the archive; with `version`, with the text of that version."""
    return SkillPageShape.make(await agent.skills.restore(skill_name, version=body.version))


@router.post("/v1/agents/{agent_id}/skills/{skill_name}/protect")
async def protect_skill(agent: ThisAgent, skill_name: _Name, body: SkillProtectIn) -> SkillPageShape:
    """Have only people change a skill, or the agent, too."""
    return SkillPageShape.make(await agent.skills.protect(skill_name, protected=body.protected))
