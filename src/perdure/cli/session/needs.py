"""What a command needs beside its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NO_AGENT = "there is no agent yet: `perdure` makes one and starts the chat"
NO_STORE = "`perdure` makes an agent and starts the chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSetup:
    """What the function of a command gets beside its arguments, and how the command ends where there is no store yet.

    Args:
        given: the parameters that are opened for the function: `perdure`, the store, or `access`, the rights of its
            users; both for the organisation in the argument `org`. Also `view`, where it shows its results.
        agents: names of arguments; the function gets the agents that their values name. Without agents, and without
            `finds`, `none` and `lacks`, a missing store is made.
        change: whether it changes an agent, so that a name of several is refused; or a function of the arguments.
        refuses: rules for arguments that do not go together, each (a function of the arguments that is true for wrong
            ones, the error's text, the option that the error names); `{kind}` in the text is replaced by that argument.
        finds: the kind of thing, such as "run", that the argument `named` (by default the first) names; without a
            store the error says that it is not found.
        none: the hint with which the command ends without a store or an agent; `shape` is its result for programs.
        lacks: the end of the error which says that there is no store yet.
        argument_names: an argument of the library -> what the command calls it, where that is not its own option.
        command: its name, and `places` the arguments that are given by their places, in order: an error about the
            agent says it with them in their right order.
    """

    given: Sequence[str] = ()
    agents: Sequence[str] = ()
    change: bool | Callable[[Mapping[str, Any]], bool] = False
    refuses: Sequence[tuple[Callable[[Mapping[str, Any]], object], str, str | None]] = ()
    finds: str = ""
    named: str = ""
    none: str = ""
    shape: object = ()
    lacks: str = ""
    argument_names: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    places: Sequence[str] = ()
