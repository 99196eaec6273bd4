"""`perdure import`."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

from perdure.cli.commands.run import Org, Yes, agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import confirm, open_store, progress_bar
    from perdure.cli.views.view import Output, plural, visible
    from perdure.core.errors import InvalidInput
    from perdure.core.ids import AgentId
    from perdure.features.imports.sources.items import IMPORT_SOURCES
    from perdure.features.imports.views import nothing_line, report_lines, server_lines
    from perdure.library.parts.checks import check_choice


@command("import")
async def import_(
    view: Output,
    source: Annotated[str, argument("chatgpt, claude, mem0, zep, letta, letta-db, markdown or jsonl.", "SOURCE")],
    path: Annotated[
        str, argument("The export: a ZIP file as downloaded, a folder or a file; for letta, the server's URL.", "PATH")
    ],
    agent: Annotated[
        str | None, agent_option("The agent that gets it, created if missing; by default named after the source.")
    ] = None,
    facts: Annotated[bool, flag("--facts", "Also extract facts from it.")] = False,
    key: Annotated[str | None, option("For letta: the server's key; by default LETTA_API_KEY.", "KEY")] = None,
    yes: Yes = False,
    org: Org = None,
) -> None:
    """Bring conversations and memories from another program.

    It reads everything first, says what is new, and asks. What is already there is skipped, so you can run it again.
    """
    check_choice("SOURCE", source, (*IMPORT_SOURCES, "letta"))
    if source == "letta":
        if agent is not None or facts:
            raise InvalidInput("letta brings whole agents under their own names: leave --agent and --facts out")
        await _import_server(view, path, key or os.environ.get("LETTA_API_KEY"), yes=yes, org=org)
        return
    async with open_store(org=org) as perdure:
        view.show_status("reading…")
        plan = await perdure.imports.plan(source, path, agent=agent)  # type: ignore[arg-type]
        view.clear_status()
        if not plan.has_news and not facts:
            view.show(asdict(plan), *report_lines(plan, done=True))
            view.hint(f"{nothing_line(plan)}; nothing was imported.")
            return
        view.print(*report_lines(plan))
        if plan.has_news:
            confirm(view, f"Import {plural(plan.new, 'new item')}?", action="import it", yes=yes)
        with progress_bar() as progress:
            report = await perdure.imports.run(
                source,  # type: ignore[arg-type]
                path,
                agent=agent,
                facts=facts,
                plan=plan,
                progress=lambda done: progress("importing", done, plan.total),
            )
        if facts and hasattr(perdure.agent_of(AgentId("")), "facts"):
            view.show_status("extracting facts… (what is left goes on later)")
            for agent_id in filter(None, report.agents.values()):
                await perdure.agent_of(agent_id).facts.extract()
            view.clear_status()
        view.show(asdict(report), *report_lines(report, done=True))
        name = next(iter(report.agents), "")
        view.hint(f"`perdure chat {shell_word(name)}` goes on from there; `perdure search TEXT` finds it.")


async def _import_server(view: Output, url: str, key: str | None, *, yes: bool, org: str | None) -> None:
    """Copy a running server of Letta's API, after a look at all of it and a question."""
    async with open_store(org=org) as perdure:
        view.show_status("reading…")
        with progress_bar() as progress:
            plan = await perdure.imports.plan_server(
                url, key=key, progress=lambda done: progress("reading", done, done)
            )
        view.clear_status()
        if not plan.has_news:
            view.show(asdict(plan), *map(visible, server_lines(plan, done=True)))
            view.hint("Everything is here already; nothing was imported.")
            return
        view.print(*map(visible, server_lines(plan)))
        new = ", ".join(f"{one.new:,} {kind}" for kind, one in plan.counts.items() if one.new)
        confirm(view, f"Import {new}?", action="import it", yes=yes)
        with progress_bar() as progress:
            report = await perdure.imports.run_server(
                url, key=key, progress=lambda done: progress("importing", done, plan.total)
            )
        view.show(asdict(report), *map(visible, server_lines(report, done=True)))
        view.hint("`perdure agent list` lists the agents; `perdure tool review` shows the code of tools that wait.")


@command("tool review")
async def review_tool(
    view: Output,
    name: Annotated[str | None, argument("The tool; without a name, all that wait are listed.", "NAME")] = None,
    yes: Yes = False,
) -> None:
    """Read the code of a tool that came from a server, and give it to the agents that had it there."""
    async with open_store() as perdure:
        waiting = await perdure.imports.unreviewed_tools()
        if name is None:
            lines = [f"{visible(one.name)}: {visible(', '.join(one.agents)) or 'of no agent'}" for one in waiting]
            view.show([asdict(one) for one in waiting], *lines)
            view.hint("`perdure tool review NAME` shows its code and asks." if waiting else "No tool waits.")
            return
        for one in waiting:
            if one.name == name:
                view.print(visible(one.source).strip())
                confirm(view, f"Let agents use {name}?", action="let agents use it", yes=yes)
        approved = await perdure.imports.approve_tool(name)
        view.show(asdict(approved), f"{name}: {visible(', '.join(approved.agents)) or 'no agent had it'}")
