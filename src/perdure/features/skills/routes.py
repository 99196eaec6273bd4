"""The skills of an agent: list, read, search; write, archive, restore and protect. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from perdure.features.skills import wire
from perdure.server.wire.fields import keywords
from perdure.server.wire.http import Router, ThisAgent

router = Router(tags=["skills"])

_Name = Annotated[str, Path(min_length=1, max_length=200, description="The skill's name.")]
_NewName = Annotated[str, keywords(pattern=r"^\w[\w.-]{0,63}$"), Path(description="The skill's name.")]


@router.get("/v1/agents/{agent_id}/skills")
async def list_skills(
    agent: ThisAgent, archived: Annotated[bool, Query(description="Those in the archive.")] = False
) -> list[wire.SkillShape]:
    """List the skills of an agent by name: those with files, and those that it or people wrote."""
    return [wire.SkillShape.make(one) for one in await agent.skills.list(archived=archived)]


@router.get("/v1/agents/{agent_id}/skills/search")
async def search_skills(
    agent: ThisAgent,
    query: Annotated[str, Query(description="What to look for; an empty text finds nothing.")],
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[wire.SkillShape]:
    """Search skills by words and meaning, best first, also archived ones."""
    return [wire.SkillShape.make(one) for one in await agent.skills.search(query, limit=limit)]


@router.get("/v1/agents/{agent_id}/skills/problems")
async def list_problems(agent: ThisAgent) -> wire.SkillProblems:
    """List the files that define no skill, and why."""
    return wire.SkillProblems(problems=[*await agent.skills.problems()])


@router.post("/v1/agents/{agent_id}/skills/enable")
async def enable_skills(agent: ThisAgent) -> list[wire.SkillShape]:
    """Give an agent the tools of skills, and the block of rules for what it may keep; answer with its skills."""
    await agent.skills.enable()
    return [wire.SkillShape.make(one) for one in await agent.skills.list()]


@router.get("/v1/agents/{agent_id}/skills/{skill_name}")
async def get_skill(agent: ThisAgent, skill_name: _Name) -> wire.SkillPageShape:
    """Get a skill with its instructions."""
    return wire.SkillPageShape.make(await agent.skills.get(skill_name))


@router.put("/v1/agents/{agent_id}/skills/{skill_name}")
async def write_skill(agent: ThisAgent, skill_name: _NewName, body: wire.SkillIn) -> wire.SkillPageShape:
    """Write a skill, or its next version."""
    skill = await agent.skills.write(skill_name, body.text, layer=body.layer, description=body.description)
    return wire.SkillPageShape.make(skill)


@router.get("/v1/agents/{agent_id}/skills/{skill_name}/versions")
async def list_versions(agent: ThisAgent, skill_name: _Name) -> list[wire.SkillVersionShape]:
    """List the versions of a skill, the newest first, each with what confirmed it."""
    return [wire.SkillVersionShape.make(one) for one in await agent.skills.versions(skill_name)]


@router.post("/v1/agents/{agent_id}/skills/{skill_name}/archive")
async def archive_skill(agent: ThisAgent, skill_name: _Name) -> wire.SkillPageShape:
    """Put a skill into the archive: it leaves the index, and searches still find it."""
    return wire.SkillPageShape.make(await agent.skills.archive(skill_name))


@router.post("/v1/agents/{agent_id}/skills/{skill_name}/restore")
async def restore_skill(agent: ThisAgent, skill_name: _Name, body: wire.SkillRestoreIn) -> wire.SkillPageShape:
    """Take a skill out of the archive; with `version` it says again what that version said."""
    return wire.SkillPageShape.make(await agent.skills.restore(skill_name, version=body.version))


@router.post("/v1/agents/{agent_id}/skills/{skill_name}/protect")
async def protect_skill(agent: ThisAgent, skill_name: _Name, body: wire.SkillProtectIn) -> wire.SkillPageShape:
    """Have only people change a skill, or the agent, too."""
    return wire.SkillPageShape.make(await agent.skills.protect(skill_name, protected=body.protected))
