"""Skills: from files, and from the agents themselves, which an agent reads on demand; and what may enter each layer."""

from perdure.core.features import Feature, Noun, TableUse, TextUse

FEATURE = Feature(
    name="skills",
    uses=("plugins",),
    nouns={
        "skill": Noun(
            modules=("commands",), help="List, show, search, write, archive, restore or protect skills; on, versions."
        )
    },
    routes=("routes",),
    sections={"memory": "pages:SECTION"},
    tools="tools",
    toolboxes={"skills": "scripts:SkillScripts"},
    agent_parts={"skills": "service:AsyncSkills"},
    has={
        "skills": "EXISTS (SELECT 1 FROM tools t JOIN agent_tools x ON x.tool_id = t.id"
        " WHERE t.org_id = a.org_id AND t.name = 'read_skill' AND x.agent_id = {agent})"
    },
    tables=(
        TableUse(name="skill_uses", key=("seq",)),
        TableUse(name="skill_versions", key=("skill_seq", "version")),
        TableUse(name="skills", key=("seq",)),
    ),
    text_tables=(
        TextUse(name="skills", place="skill", key=("seq",), texts=("name", "description", "text")),
        TextUse(
            name="skill_versions", place="skill", key=("skill_seq", "version"), texts=("description", "text", "sources")
        ),
        TextUse(name="skill_uses", place="skill", key=("seq",), texts=("name",)),
    ),
    copies="copies:SKILLS",
    points={
        "available_skills": "index:available_skills",
        "memory_deltas": "index:memory_deltas",
        "memory_versions": "index:memory_versions",
        "status_counts": "index:status_counts",
        "proposal_targets": "proposals:SkillTargets",
    },
)
