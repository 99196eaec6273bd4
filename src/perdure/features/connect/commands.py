"""`perdure connect`: give a program Perdure's memory by its own configuration."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from collections.abc import Sequence
    from pathlib import Path

    from perdure.cli.session.work import confirm
    from perdure.cli.views.render import diff_view
    from perdure.cli.views.view import Output, visible
    from perdure.core.errors import InvalidInput
    from perdure.core.text.line_diff import unified_diff
    from perdure.features.connect.checks import check_entries
    from perdure.features.connect.files import (
        FileChange,
        check_writable,
        file_texts,
        plan_changes,
        undo_changes,
        write_changes,
    )
    from perdure.features.connect.programs import ConfigEntry, check_options, find_program, plan_entries, server_address
    from perdure.features.notes.folders import find_project_folder
    from perdure.features.notes.nudges import check_nudge_level


@command("connect", json=False)
async def connect_program(
    view: Output,
    program: Annotated[str, argument("claude-code, cursor, codex, vscode, zed, open-webui or letta-code.", "PROGRAM")],
    project: Annotated[
        str | None, option("Change this project's configuration instead of your own.", "DIR", name="--project")
    ] = None,
    read_only: Annotated[bool, flag("--read-only", "Let it only read memory.")] = False,
    no_hooks: Annotated[
        bool, flag("--no-hooks", "Only the tools; nothing is recalled or captured automatically.")
    ] = False,
    nudges: Annotated[
        str | None, option("Reminders to write notes: off, light, balanced or strict.", "LEVEL", name="--nudges")
    ] = None,
    only_print: Annotated[bool, flag("--print", "Print what would be written, and write nothing.")] = False,
    undo: Annotated[bool, flag("--undo", "Remove what was written, byte for byte.")] = False,
    yes: Yes = False,
) -> None:
    """Connect a program, such as Claude Code, to memory.

    It shows what it would write, asks, writes, and checks that it starts.
    """
    known = find_program(program)
    check_options(
        known,
        {"--project": project, "--read-only": read_only, "--no-hooks": no_hooks, "--nudges": nudges, "--undo": undo},
    )
    if known.by_hand:
        view.print(known.by_hand.strip().format(address=server_address()))
        return
    if undo and only_print:
        raise InvalidInput("--undo writes and --print does not: give one of them")
    if undo:
        for line in undo_changes(known.name, project):
            view.print(visible(line))
        view.hint("What was remembered stays; `perdure agent list` shows it.")
        return
    folder = None if project is None else find_project_folder(project)
    entries = plan_entries(
        known,
        folder=folder,
        read_only=read_only,
        hooks=not no_hooks,
        nudges="" if nudges is None else check_nudge_level(nudges),
    )
    if only_print:
        _print_entries(view, entries)
        return
    try:
        changes = [change for change in plan_changes(entries) if change.before != change.after]
        for change in changes:
            check_writable(change.path, folder)
    except InvalidInput as error:
        view.print(f"{visible(str(error))}\n\nTo add by hand:")
        _print_entries(view, entries)
        raise InvalidInput(f"{known.title} was not connected: nothing was written") from None
    if changes:
        for change in changes:
            _show_change(view, change)
        confirm(view, f"Write this for {known.title}?", action=f"connect {known.name}", yes=yes)
        write_changes(known.name, changes, entries, folder)
    else:
        view.print(f"{known.title} is connected already.")
    for started in await check_entries(entries, folder or Path.cwd()):
        view.print(f"`{started}` starts and answers.")
    view.hint(f"{known.next} `perdure connect {known.name} --undo` takes it out again.")


def _show_change(view: Output, change: FileChange) -> None:
    """Show what is written to a file as a diff."""
    before, after = (
        data.decode("utf-8", "replace").replace("\r\n", "\n") for data in (change.before or b"", change.after)
    )
    what = "new file" if change.before is None else "changes"
    view.print(f"{visible(str(change.path))} ({what})", diff_view(unified_diff(before, after), limit=None))


def _print_entries(view: Output, entries: Sequence[ConfigEntry]) -> None:
    """Print what belongs into each file, to be added by hand."""
    for path, text in file_texts(entries).items():
        view.print(f"{visible(str(path))}:\n{visible(text)}")
