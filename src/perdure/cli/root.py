"""The group of all commands: verbs of every day, and nouns whose verbs are imported when they are needed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from perdure.cli.old_forms import new_form

NOUNS: Mapping[str, tuple[str, str]] = {
    "agent": ("agents", "Create, list, update, reset, cancel or delete agents."),
    "memory": ("agents", "List, show or restore memory blocks, or show their history."),
    "fact": (
        "facts",
        "List, search, show, add, edit, forget, restore, accept or tidy; history, rules,"
        " profile, timeline, entities, pause, resume.",
    ),
    "conversation": ("agents", "List, rename, delete or import conversations."),
    "approval": ("agents", "List, approve or deny the tool calls that wait."),
    "run": ("agents", "List, show, cancel, replay, fork or export runs."),
    "archive": ("archives", "List, attach, detach, delete, export or import archives."),
    "folder": ("archives", "List, attach, detach or delete folders of files."),
    "file": ("archives", "Upload, list or delete files of folders."),
    "tool": ("tools", "Add, list, show, test, attach, detach or delete tools."),
    "mcp": ("tools", "Add, list, show, refresh, approve or delete MCP servers."),
    "secret": ("tools", "Set, list or delete values that tools need, encrypted."),
    "hook": ("tools", "List the hooks of this machine."),
    "key": ("archives", "Show the API key of the server."),
    "store": ("archives", "Verify or reindex the store."),
}
"""Noun -> (module of `nouns` that declares its verbs, help)."""

ALIASES = {"facts": "fact"}


def is_word(text: str) -> bool:
    """Whether a text could be the name of a command."""
    return text.isascii() and text[:1].isalpha() and text.replace("-", "").isalnum()


class Root(TyperGroup):
    """Verbs, nouns and old forms; an argument that can't be a command's name is a message to the agent used last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*self.commands, *NOUNS]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in NOUNS and cmd_name not in self.commands:
            module, help = NOUNS[cmd_name]
            noun = getattr(import_module(f"perdure.cli.nouns.{module}"), cmd_name)
            self.commands[cmd_name] = group = typer.main.get_group(noun)
            group.name, group.help, group.no_args_is_help = cmd_name, help, True
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        args = [ALIASES.get(args[0], args[0]), *args[1:]]
        if (renamed := new_form(args)) is not None:
            args = renamed
            if not ctx.resilient_parsing:  # not while a shell completes
                typer.echo(f"This form goes with the next version: write `perdure {shlex.join(args)}`.", err=True)
        elif not is_word(args[0]):
            args = ["chat", "--prompt", *args]
        elif args[0] not in self.list_commands(ctx) and not ctx.resilient_parsing:
            similar = get_close_matches(args[0], self.list_commands(ctx), n=1)
            ctx.fail(
                f"No such command {args[0]!r}.{f' Did you mean {similar[0]!r}?' if similar else ''}"
                f" As a message: perdure -p {shlex.quote(' '.join(args))}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        verbs = [name for name in self.commands if name not in NOUNS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(80)) for name in verbs])
        with formatter.section("Nouns, with verbs as in `perdure agent list`"):
            formatter.write_dl([(name, help) for name, (_, help) in NOUNS.items()])
