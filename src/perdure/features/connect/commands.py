"""`perdure connect`: give a program Perdure's memory by its own configuration."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import Yes, argument, command, flag, for_work, option

if for_work(__name__):
    import difflib
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from perdure.cli.session.work import confirm
    from perdure.cli.views.render import diff_view
    from perdure.cli.views.view import Output, visible
    from perdure.core.errors import InvalidInput
    from perdure.features.connect.checks import check_starts
    from perdure.features.connect.files import FileChange, check_writable, plan_changes
    from perdure.features.connect.hooks import hook_entries
    from perdure.features.connect.programs import ADDRESS, ConfigEntry, Program, find_program, plan_entries
    from perdure.features.connect.snippets import entry_text
    from perdure.features.connect.undo import undo_changes, write_changes
    from perdure.features.notes.folders import find_project_folder


@command("connect", json=False)
async def connect_program(
    view: Output,
    program: Annotated[str, argument("claude-code, cursor, codex, vscode, zed, open-webui or letta-code.", "PROGRAM")],
    project: Annotated[
        str | None, option("Change the configuration of this project, not yours.", "DIR", name="--project")
    ] = None,
    read_only: Annotated[bool, flag("--read-only", "Let it only read memory.")] = False,
    no_hooks: Annotated[bool, flag("--no-hooks", "Only the tools; nothing is recalled or captured by itself.")] = False,
    only_print: Annotated[bool, flag("--print", "Print what would be written, and write nothing.")] = False,
    undo: Annotated[bool, flag("--undo", "Take it out again, byte for byte.")] = False,
    yes: Yes = False,
) -> None:
    """Connect a program, such as Claude Code, to memory.

    It shows what it would write, asks, writes, and checks that it starts.
    """
    known = find_program(program)
    if known.by_hand:
        view.print(known.by_hand.strip().format(address=os.environ.get("PERDURE_BASE_URL", ADDRESS)))
        return
    if undo and only_print:
        raise InvalidInput("--undo writes and --print does not: give one of them")
    folder = None if project is None else find_project_folder(project)
    if undo:
        for line in undo_changes(known.name, folder):
            view.print(visible(line))
        view.hint("What was remembered stays; `perdure agent list` shows it.")
        return
    entries = [
        *plan_entries(known, folder=folder, read_only=read_only),
        *([] if no_hooks or read_only else hook_entries(known, folder=folder)),
    ]
    if only_print:
        _print_entries(view, known, entries)
        return
    try:
        changes = [one for one in plan_changes(entries) if one.before != one.after]
        for change in changes:
            check_writable(change.path)
    except InvalidInput as error:
        view.print(f"{visible(str(error))}\n\nTo add by hand:")
        _print_entries(view, known, entries)
        raise InvalidInput(f"{known.title} was not connected: nothing was written") from None
    if changes:
        for change in changes:
            _show_change(view, change)
        confirm(view, f"Write this for {known.title}?", action=f"connect {known.name}", yes=yes)
        write_changes(known.name, changes, entries)
    else:
        view.print(f"{known.title} is connected already.")
    problem = await _check_entry(entries[0], folder or Path.cwd())
    if problem:
        raise InvalidInput(f"it was written, but `perdure mcp` does not start: {problem}")
    view.print("`perdure mcp` starts and answers.")
    view.hint(f"{known.next} `perdure connect {known.name} --undo` takes it out again.")


async def _check_entry(entry: ConfigEntry, folder: Path) -> str:
    """Start the server as the program would for a project; return why it failed, empty if not."""
    words = [entry.value["command"], *entry.value["args"]]
    words = [word.replace("${workspaceFolder}", str(folder)) for word in words]
    return await check_starts(words, entry.value.get("env", {}), str(folder))


def _show_change(view: Output, change: FileChange) -> None:
    """Show what is written to a file as a diff."""
    before = (change.before or b"").decode("utf-8", "replace").splitlines()
    after = change.after.decode("utf-8", "replace").splitlines()
    diff = [*difflib.unified_diff(before, after, n=2, lineterm="")]
    what = "new file" if change.before is None else "changes"
    view.print(f"{visible(str(change.path))} ({what})", diff_view("\n".join(diff[2:])))


def _print_entries(view: Output, program: Program, entries: Sequence[ConfigEntry]) -> None:
    """Print what belongs into each file, to be added by hand."""
    for entry in entries:
        view.print(f"{visible(str(entry.path))}:\n{visible(entry_text(entry))}")
