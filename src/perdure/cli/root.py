"""The group of all commands: verbs of every day, and nouns with verbs. Their modules are read when they are needed."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from typer.core import TyperGroup

from perdure.cli.commands.run import group_of, store_option
from perdure.core.features import find_features

VERBS: Mapping[str, tuple[str, str]] = {
    "chat": ("", "Chat with an agent."),
    "history": ("agents", "Print what was said, with tool calls and edits of memory."),
    "search": ("archives", "Search messages and archives."),
    "serve": ("serve", "Serve the agents over HTTP, as letta-client speaks it."),
    "ui": ("serve", "Open the dashboard in a browser, and serve it if nobody does."),
    "doctor": ("doctor", "Check models, data and ports, and say what helps."),
}
"""Command of every day -> (module of `commands`, or nothing where `app` has it, first sentence of its help)."""

NOUNS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "agent": (
        ("agents",),
        "Create, list, show, update, clone, export, import, load, reset, restore, cancel, delete; settings, snapshots.",
    ),
    "memory": (("memory",), "List, show, edit, restore, revert, protect, checkout or push blocks; history, log."),
    "conversation": (("agents",), "List, rename, delete or import conversations."),
    "approval": (("runs",), "List, approve or deny the tool calls that wait."),
    "run": (("runs",), "List, show, cancel, replay, fork or export runs."),
    "archive": (("archives",), "List, show, attach, detach, delete, restore, export or import."),
    "tool": (("tools",), "Add, list, show, test, review, attach, detach or delete tools."),
    "secret": (("tools",), "Set, list, delete or rotate values that tools need, encrypted."),
    "hook": (("doctor",), "List the hooks of this machine."),
    "store": (("upkeep",), "Verify, scrub, reindex or split the store."),
}
"""Noun -> (modules of `commands` with its verbs, help)."""


@functools.cache
def verbs() -> Mapping[str, tuple[str, str]]:
    """Map each command of every day, also of features, to its module and the first sentence of its help."""
    return dict(VERBS) | {
        name: (f"{feature.package}.{verb.modules[0]}", verb.help)
        for feature in find_features()
        for name, verb in feature.verbs.items()
    }


@functools.cache
def nouns() -> Mapping[str, tuple[tuple[str, ...], str]]:
    """Map each noun, also of features, to the modules with its verbs (own ones first) and its help."""
    found = dict(NOUNS)
    for feature in find_features():
        for name, noun in feature.nouns.items():
            modules, help = found.get(name, ((), noun.help))
            help = noun.help or help
            found[name] = (*modules, *(f"{feature.package}.{module}" for module in noun.modules)), help
    return found


@functools.cache
def default_verbs() -> Mapping[str, str]:
    """Return noun -> the verb that runs when none is given; nouns without one are left out."""
    return {name: noun.default for feature in find_features() for name, noun in feature.nouns.items() if noun.default}


_WORD = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
"""What could be the name of a command."""


class Root(TyperGroup):
    """Verbs and nouns; an argument that can't be a command's name is a message to the agent used last."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params.append(store_option(hidden=False))

    def list_commands(self, ctx: Any) -> list[str]:
        return [*verbs(), *nouns()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in nouns() and cmd_name not in self.commands:
            modules, help = nouns()[cmd_name]
            self.commands[cmd_name] = group = group_of(cmd_name, *modules)
            group.name, group.help, group.no_args_is_help = cmd_name, help, True
        elif cmd_name in verbs() and cmd_name not in self.commands:
            self.commands[cmd_name] = group_of("", verbs()[cmd_name][0]).commands[cmd_name]
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0].endswith("s") and args[0][:-1] in nouns():  # a plural; without a verb it lists
            is_bare = not args[1:] or _is_option(ctx, args[1])
            args = [args[0][:-1], *(["list"] if is_bare else []), *args[1:]]
        if args[0] in default_verbs() and (not args[1:] or _is_option(ctx, args[1])):
            args = [args[0], default_verbs()[args[0]], *args[1:]]
        if not _WORD.fullmatch(args[0]):
            args = ["chat", "--prompt", *args]
        elif args[0] not in self.list_commands(ctx) and not ctx.resilient_parsing:
            similar = get_close_matches(args[0], self.list_commands(ctx), n=1)
            ctx.fail(
                f"No such command {args[0]!r}.{f' Did you mean {similar[0]!r}?' if similar else ''}"
                f" As a message: perdure -p {shlex.quote(' '.join(args))}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, table in (("Commands", verbs()), ("Nouns, with verbs as in `perdure agent list`", nouns())):
            with formatter.section(title):
                formatter.write_dl([(name, help) for name, (_, help) in table.items()])


def _is_option(context: Any, argument: str) -> bool:
    """Whether an argument is an option, and does not ask for help."""
    return argument.startswith("-") and argument not in context.help_option_names
