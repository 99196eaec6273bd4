"""`perdure export`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from perdure.cli.commands.run import Org, agent_names, argument, command, flag, for_work

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import progress_bar
    from perdure.cli.views.view import Output, plural
    from perdure.core.errors import InvalidInput
    from perdure.library.perdure import AsyncPerdure


@command("export", lacks="nothing to export")
async def export(
    view: Output,
    perdure: AsyncPerdure,
    names: Annotated[
        list[str],
        argument("An agent's name or id (none with --all), then the folder.", "AGENT DIR", autocompletion=agent_names),
    ],
    all_: Annotated[bool, flag("--all", "All agents, each in a folder of its own.")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "Replace a folder that an export has written.")] = False,
    org: Org = None,
) -> None:
    """Write agents as JSON lines and Markdown.

    The folder has an agent's memory, conversations and passages; `perdure import jsonl DIR` reads it back.
    """
    if len(names) != (1 if all_ else 2):
        what, form = ("the folder", "--all DIR") if all_ else ("an agent and a folder", "AGENT DIR")
        raise InvalidInput(f"give {what}: `perdure export {form}`")
    agents = [] if all_ else [(await perdure.agent(names[0])).id]
    with progress_bar() as progress:
        written = await perdure.export(
            names[-1], *agents, overwrite=overwrite, progress=lambda done: progress("exporting", done, done)
        )
    view.show(
        {"exported": [asdict(one) | {"folder": str(one.folder)} for one in written]},
        "\n".join(
            f"{one.name}: {plural(one.conversations, 'conversation')}, {plural(one.messages, 'message')},"
            f" {plural(one.passages, 'passage')} in {one.folder}"
            for one in written
        ),
    )
    view.hint(f"`perdure import jsonl {shell_word(names[-1])}` reads it back.")
