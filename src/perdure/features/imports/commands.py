"""`perdure import`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from perdure.cli.commands.run import Org, Yes, agent_option, argument, command, flag, for_work

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import confirm, open_store, progress_bar
    from perdure.cli.views.view import Output, plural
    from perdure.core.ids import AgentId
    from perdure.features.imports.sources.items import IMPORT_SOURCES
    from perdure.features.imports.views import nothing_line, report_lines
    from perdure.library.parts.checks import check_choice


@command("import")
async def import_(
    view: Output,
    source: Annotated[str, argument("chatgpt, claude, mem0, zep, letta-db, markdown or jsonl.", "SOURCE")],
    path: Annotated[str, argument("The export: a ZIP file as downloaded, a folder or a file.", "PATH")],
    agent: Annotated[
        str | None, agent_option("Who gets it; made if missing, by default with the source's name.")
    ] = None,
    facts: Annotated[bool, flag("--facts", "Extract facts from it, too.")] = False,
    yes: Yes = False,
    org: Org = None,
) -> None:
    """Bring conversations and memories from another program.

    It reads everything first, says what is new, and asks. What is there already is skipped, so that it can be repeated.
    """
    check_choice("SOURCE", source, IMPORT_SOURCES)
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
