"""The group of all commands: verbs of every day, and nouns with verbs. Their modules are read when they are needed."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from perdure.cli.run import group_of, store_option
from perdure.core.features import find_features

VERBS: Mapping[str, tuple[str, str]] = {
    "chat": ("", "Chat with an agent."),
    "history": ("conversations", "Print what was said, with tool calls and edits of memory."),
    "search": ("search", "Search messages and archives."),
    "why": ("provenance.sources", "Show where a memory comes from, or what was behind an answer."),
    "forget": ("forget", "Show where a text stands in memory and history, and take it out."),
    "undo": ("forget", "Undo what was forgotten or corrected in an agent."),
    "event": ("schedules.schedules", "Tell an agent that something happened, and print what it says."),
    "context": ("context", "Show what fills the context window, what a model was sent, and what it cost."),
    "compress": ("compress", "Print a tool's output in fewer tokens, as an agent sees it."),
    "serve": ("serve", "Serve the agents over HTTP, as letta-client speaks it."),
    "ui": ("serve", "Open the dashboard in a browser, and serve it if nobody does."),
    "backup": ("database.copies", "Copy the store as it is now to a new file, while agents work."),
    "restore": ("database.copies", "Put a backup in the place of the store."),
    "migrate-db": ("database.copies", "Copy a store to another database, such as PostgreSQL."),
    "doctor": ("doctor", "Check models, data and ports, and say what helps."),
}
"""Command of every day -> (module of `commands`, or nothing where `app` has it, first sentence of its help)."""

NOUNS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "agent": (("agents",), "Create, list, update, export, import, reset, cancel or delete agents; settings."),
    "memory": (("memory", "provenance.sources"), "List, show, restore or revert memory blocks; history."),
    "source": (("provenance.sources",), "List, show or revert what memory came from."),
    "fact": (
        ("facts", "fact_views"),
        "List, search, show, add, edit, forget, restore, accept or tidy; history, rules,"
        " profile, timeline, context, communities, entities, pause, resume, settings.",
    ),
    "group": (("groups.groups",), "List, show, create, update, cancel, reset, delete; send."),
    "companion": (("groups.companions",), "List, show, wake or update agents that tidy memory; on, off."),
    "conversation": (("conversations", "transfer"), "List, rename, delete or import conversations."),
    "approval": (("approvals",), "List, approve or deny the tool calls that wait."),
    "schedule": (("schedules.schedules",), "Add, list, show, cancel or delete what wakes agents."),
    "run": (("runs",), "List, show, cancel, replay, fork or export runs."),
    "archive": (("archives", "transfer"), "List, show, attach, detach, delete, restore, export or import."),
    "folder": (("folders",), "List, attach, detach or delete folders of files."),
    "file": (("folders",), "Upload, list or delete files of folders."),
    "tool": (("tools",), "Add, list, show, test, attach, detach or delete tools."),
    "mcp": (("mcp",), "Add, list, show, refresh, approve or delete MCP servers."),
    "secret": (("secrets",), "Set, list, delete or rotate values that tools need, encrypted."),
    "hook": (("doctor",), "List the hooks of this machine."),
    "org": (("access.access",), "Create, list or delete organisations; audit."),
    "user": (("access.access",), "Create, list or delete users."),
    "key": (("access.access",), "Create, list, revoke or delete API keys; show the server's own."),
    "store": (("upkeep",), "Verify, scrub, reindex or split the store."),
}
"""Noun -> (modules of `commands` with its verbs, help)."""


@functools.cache
def nouns() -> Mapping[str, tuple[tuple[str, ...], str]]:
    """Those, and the nouns and verbs of features: noun -> (modules with its verbs, help)."""
    found = dict(NOUNS)
    for feature in find_features():
        for name, noun in feature.nouns.items():
            modules, help = found.get(name, ((), noun.help))
            found[name] = (*modules, *(f"{feature.package}.{module}" for module in noun.modules)), help
    return found


ALIASES = {"facts": "fact", "groups": "group", "companions": "companion", "schedules": "schedule"}
"""Plural -> noun. Alone it lists."""
REST = "..."
OLD_FORMS: Mapping[str, str] = {
    "agents --delete AGENT": "agent delete AGENT ...",
    "agents": "agent list ...",
    "reset": "agent reset ...",
    "cancel": "agent cancel ...",
    "approvals": "approval list ...",
    "approve": "approval approve ...",
    "deny": "approval deny ...",
    "conversations --rename NUMBER NAME": "conversation rename NUMBER NAME ...",
    "conversations --delete NUMBER": "conversation delete NUMBER ...",
    "conversations": "conversation list ...",
    "import-messages": "conversation import ...",
    "archives --attach ARCHIVE AGENT": "archive attach ARCHIVE AGENT ...",
    "archives --detach ARCHIVE AGENT": "archive detach ARCHIVE AGENT ...",
    "archives --delete ARCHIVE": "archive delete ARCHIVE ...",
    "archives": "archive list ...",
    "export": "archive export ...",
    "import": "archive import ...",
    "folders --attach FOLDER AGENT": "folder attach FOLDER AGENT ...",
    "folders --detach FOLDER AGENT": "folder detach FOLDER AGENT ...",
    "folders --delete FOLDER": "folder delete FOLDER ...",
    "folders": "folder list ...",
    "files --delete FILE": "file delete FILE ...",
    "files": "file list ...",
    "upload": "file upload ...",
    "tool attach --agent AGENT": "tool attach ... AGENT",
    "tool detach --agent AGENT": "tool detach ... AGENT",
    "tool remove": "tool delete ...",
    "mcp tools": "mcp show ...",
    "mcp remove": "mcp delete ...",
    "secret remove": "secret delete ...",
    "hooks": "hook list ...",
    "key": "key show",
    "reindex": "store reindex ...",
    "verify": "store verify ...",
}
"""Old form -> new form, for one version. Capitals are values of the option before them; `...` is all the rest, and
without it there may be none. The first form that fits is taken."""


def is_word(text: str) -> bool:
    """Whether a text could be the name of a command."""
    return text.isascii() and text[:1].isalpha() and text.replace("-", "").isalnum()


class Root(TyperGroup):
    """Verbs, nouns and old forms; an argument that can't be a command's name is a message to the agent used last."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params.append(store_option(hidden=False))

    def list_commands(self, ctx: Any) -> list[str]:
        return [*VERBS, *nouns()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in nouns() and cmd_name not in self.commands:
            modules, help = nouns()[cmd_name]
            self.commands[cmd_name] = group = group_of(cmd_name, *modules)
            group.name, group.help, group.no_args_is_help = cmd_name, help, True
        elif cmd_name in VERBS and cmd_name not in self.commands:
            self.commands[cmd_name] = group_of("", VERBS[cmd_name][0]).commands[cmd_name]
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] in ALIASES:
            args = [ALIASES[args[0]], *(args[1:] or ["list"])]
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
        for title, table in (("Commands", VERBS), ("Nouns, with verbs as in `perdure agent list`", nouns())):
            with formatter.section(title):
                formatter.write_dl([(name, help) for name, (_, help) in table.items()])


def new_form(arguments: Sequence[str]) -> list[str] | None:
    """The arguments in the new form; None if they are in no old one."""
    for old, new in OLD_FORMS.items():
        head, _, option = old.partition(" --")
        words = head.split()
        if list(arguments[: len(words)]) != words:
            continue
        flag, *names = f"--{option}".split() if option else [""]
        taken = _take_option(arguments[len(words) :], flag, len(names))
        if taken is None:
            continue
        values, rest = taken
        if REST not in new and rest:
            continue
        by_name = dict(zip(names, values, strict=True))
        return [part for word in new.split() for part in (rest if word == REST else [by_name.get(word, word)])]
    return None


def _take_option(arguments: Sequence[str], flag: str, count: int) -> tuple[list[str], list[str]] | None:
    """The values of an option and all other arguments; None if the option, or one of its values, is not there."""
    if not flag:
        return [], list(arguments)
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            values = [*([value] if equals else []), *arguments[at + 1 :]][:count]
            rest = [*arguments[:at], *arguments[at + 1 + count - bool(equals) :]]
            return (values, rest) if len(values) == count else None
    return None
