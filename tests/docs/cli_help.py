"""The help texts in docs/cli.md, made from the command itself: `python -m tests.docs.cli_help` writes them anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer
from typer.testing import CliRunner

from perdure.cli.app import app
from perdure.cli.chat.slash import COMMANDS
from perdure.cli.root import Root
from tests.docs.markdown import ROOT

PAGE = ROOT / "docs" / "cli.md"
WIDTH = "80"


def help_section() -> str:
    """What `--help` prints, for `perdure` and each of its commands."""
    return "\n".join(f"```text\n$ perdure {' '.join((*path, '--help'))}\n{_help(path)}```\n" for path in _paths())


def slash_section() -> str:
    """The commands inside of a chat."""
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = (f"{command.usage:<{width}}  {command.help}\n" for command in COMMANDS.values())
    return f"```text\n{''.join(lines)}```\n"


def rewrite_sections(page: str) -> str:
    """The page with these sections as they are now."""
    for name, section in (("help", help_section()), ("slash", slash_section())):
        before, begin, rest = page.partition(f"<!-- {name} begins -->\n")
        _, end, after = rest.partition(f"<!-- {name} ends -->")
        assert begin and end, f"{PAGE.name} has no place for {name}"
        page = before + begin + section + end + after
    return page


def _paths() -> Iterator[tuple[str, ...]]:
    """The command itself, then each of its commands, and theirs."""

    root = Root(name="perdure", commands=dict(typer.main.get_group(app).commands))
    context = typer.Context(root)
    yield ()
    for name in root.list_commands(context):
        yield (name,)
        yield from ((name, verb) for verb in getattr(root.get_command(context, name), "commands", {}))


def _help(path: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*path, "--help"], prog_name="perdure", env={"COLUMNS": WIDTH})
    assert result.exit_code == 0, result.output
    return "".join(f"{line.rstrip()}\n" for line in result.output.splitlines())


def main(page: Path = PAGE) -> None:
    page.write_text(rewrite_sections(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
