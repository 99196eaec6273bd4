"""Forms of commands from before the grammar of noun and verb. They work for one version, and name the new form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
"""Old form -> new form. Capitals are values of the option before them; `...` is all the rest, and without it there
may be none. The first form that fits is taken."""


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
