"""`perdure skill`: list, show, search, write, archive, restore and protect the skills of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from perdure.cli.commands.run import Agent, LastAgent, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import read_text
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, local_time, new_table, plural, visible
    from perdure.features.skills.values import SkillView

Name = Annotated[str, argument("The skill's name.", "NAME")]

NO_SKILLS = "There are no skills yet: `perdure skill on AGENT` lets an agent keep what worked."
SUMMARY = ("name", "layer", "description", "version", "is_protected", "archived_at", "changed_at", "path")


@command("skill on", change=True)
async def turn_on(
    view: Output, agent: Agent, read_only: Annotated[bool, flag("--read-only", "It only reads skills.")] = False
) -> None:
    """Give an agent the tools of skills, and the rules for what it may keep."""
    await agent.skills.enable(learns=not read_only)
    shapes = await agent.skills.list()
    view.show([skill_shape(shape) for shape in shapes], f"{visible(agent.name)} has {plural(len(shapes), 'skill')}.")
    view.hint("`perdure skill list` shows them")


@command("skill list", none=NO_SKILLS)
async def list_skills(
    view: Output, agent: LastAgent, archived: Annotated[bool, flag("--archived", "Those in the archive.")] = False
) -> None:
    """List the skills of an agent: those with files, and those that it or people wrote."""
    _show_table(view, await agent.skills.list(archived=archived))
    for problem in await agent.skills.problems():
        view.hint(visible(problem))


@command("skill search", none=NO_SKILLS)
async def search_skills(
    view: Output,
    query: Annotated[str, argument("What is looked for.", "TEXT")],
    agent: LastAgent,
    limit: Annotated[int, option("At most this many.", "NUMBER", min=1, max=100)] = 10,
) -> None:
    """Search skills by words and meaning, best first, also archived ones."""
    _show_table(view, await agent.skills.search(query, limit=limit), none="No skill was found.")


@command("skill show", finds="skill")
async def show_skill(view: Output, skill: Name, agent: LastAgent) -> None:
    """Print the instructions of a skill."""
    found = await agent.skills.get(skill)
    head = Text(visible(f"{found.name}  {found.layer}  {found.description}"), style="bold")
    files = [Text(visible(f"files: {', '.join(found.files)}"), style="dim")] if found.files else []
    shape = skill_shape(found, "text") | {"files": [*found.files]}
    view.show_long(shape, head, Text(visible(found.text)), *files)


@command("skill versions", finds="skill")
async def list_versions(view: Output, skill: Name, agent: LastAgent) -> None:
    """List the versions of a skill, and what confirmed each."""
    table = new_table("version", "written", "by", "confirmed by", "says")
    shapes = []
    for one in await agent.skills.versions(skill):
        by = one.run_id or one.written_by
        confirmed = f"{one.evidence} {one.evidence_id or ''}".strip()
        table.add_row(*map(visible, (str(one.version), local_time(one.created_at), by, confirmed, one.description)))
        names = (
            "version",
            "description",
            "text",
            "diff",
            "written_by",
            "run_id",
            "evidence",
            "evidence_id",
            "created_at",
        )
        shapes.append(fields(one, *names))
    view.show(shapes, table)
    view.hint(f"`perdure skill restore {visible(skill)} {shell_word(agent.name)} --version NUMBER` brings one back")


@command("skill write", change=True, argument_names={"description": "--about"})
async def write_skill(
    view: Output,
    skill: Name,
    text: Annotated[str, argument("What it says; - is stdin.", "TEXT")],
    agent: LastAgent,
    layer: Annotated[Literal["L2", "L3"], option("L2: a fact about the environment; L3: a procedure.")] = "L3",
    about: Annotated[str, option("One line that says when it helps.", "TEXT")] = "",
) -> None:
    """Write a skill, or its next version."""
    body = read_text(text) if text == "-" else text
    _show_changed(view, await agent.skills.write(skill, body, layer=layer, description=about), "is stored")


@command("skill archive", finds="skill")
async def archive_skill(view: Output, skill: Name, agent: LastAgent) -> None:
    """Put a skill away: only searches find it."""
    _show_changed(view, await agent.skills.archive(skill), "is archived")
    view.hint(f"`perdure skill restore {visible(skill)} {shell_word(agent.name)}` brings it back")


@command("skill restore", finds="skill")
async def restore_skill(
    view: Output,
    skill: Name,
    agent: LastAgent,
    version: Annotated[int | None, option("The version to bring back.", "NUMBER", min=1)] = None,
) -> None:
    """Take a skill out of the archive, or bring an older version back."""
    _show_changed(view, await agent.skills.restore(skill, version=version), "is back")


@command("skill protect", finds="skill")
async def protect_skill(
    view: Output,
    skill: Name,
    agent: LastAgent,
    off: Annotated[bool, flag("--off", "Let the agent change it again.")] = False,
) -> None:
    """Let only people change a skill."""
    _show_changed(view, await agent.skills.protect(skill, protected=not off), f"is {'not ' if off else ''}protected")


def skill_shape(skill: SkillView, *more: str) -> dict[str, Any]:
    """A skill as `--json` prints it, with these fields more."""
    return fields(skill, *SUMMARY, *more) | fields(skill.uses, "uses", "successes", "last_at")


def _show_changed(view: Output, skill: SkillView, what: str) -> None:
    """Show a skill that was changed, and a sentence about it."""
    version = f", version {skill.version}" if skill.version else ""
    view.show(skill_shape(skill, "text"), f"{visible(skill.name)} {what} ({skill.layer}{version}).")


def _show_table(view: Output, skills: Sequence[SkillView], *, none: str = NO_SKILLS) -> None:
    """Show skills as a table."""
    table = new_table("skill", "layer", "version", "used", "ended well", "says")
    for one in skills:
        layer = one.layer if one.archived_at is None else f"{one.layer}, archived"
        numbers = (str(one.version or ""), str(one.uses.uses), str(one.uses.successes))
        table.add_row(*map(visible, (one.name, layer, *numbers, one.description)))
    view.show([skill_shape(skill) for skill in skills], table if skills else none)
    if skills:
        view.hint("`perdure skill show NAME` prints one")
