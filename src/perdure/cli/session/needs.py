"""What a command needs beside its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NO_AGENT = "there is no agent yet: `perdure` makes one and starts the chat"
NO_STORE = "`perdure` makes an agent and starts the chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the function of a command gets beside its arguments, and what becomes of it where there is no store yet.

    Args:
        given: of `perdure`, the open store, and `access`, who may use it: those that it takes. Both are those of the
            organisation in the argument `org`.
        agents: the arguments that it gets as agents; without any, and without a reason below, the store is made.
        change: whether an agent is changed, so that a name which several have is refused; or a function of the
            arguments that says so.
        refuses: (whether it refuses these arguments, why, the option that the error is about) of arguments that do not
            go together; `{kind}` in the reason stands for that argument.
        finds: the kind of the thing that the argument `named`, by default the first, is about: it is not found without
            a store.
        none: the hint with which it ends without a store, or without any agent; `shape` is what programs get.
        lacks: the end of the error that there is no store yet.
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
