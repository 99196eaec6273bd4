"""How this machine isolates code, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.tools.sandbox import Isolation, Measure
from perdure.toolbox.sandbox.fork_server import ServerFacts

_REQUIRED = frozenset({"files", "writing", "network", "identity", "system calls", "processes", "memory"})


def describe_isolation(
    held: Mapping[str, bool], facts: ServerFacts, *, problem: str, unsafe: bool, no_group: str
) -> Isolation:
    """The isolation of a fork server that was started and checked.

    Args:
        held: measure -> whether the check found that it holds.
        problem: what went wrong in the check; empty if nothing did.
        unsafe: code is run even if the isolation is not enough.
        no_group: why the calls have no control group around them; empty if they have.
    """
    missing = sorted(name for name in _REQUIRED if not held.get(name))
    if problem:
        summary = f"code is not held back: the check of the sandbox failed ({problem})"
    elif missing:
        summary = f"code is not held back well enough: {', '.join(missing)}"
    elif facts.namespaces:
        wall = f" and Landlock (version {facts.landlock})" if facts.landlock else "; without Landlock as a second wall"
        summary = f"code runs in namespaces of its own, behind a filter of system calls{wall}"
    else:
        summary = (
            f"code runs behind Landlock (version {facts.landlock}) and a filter of system calls, without namespaces:"
            " it can start no process and write no file"
        )
    enough = not problem and not missing
    measures = tuple(
        Measure(name=name, works=holds, meaning=meaning if holds else otherwise)
        for name, holds, meaning, otherwise in _measures(held, facts, no_group)
    )
    return Isolation(backend="linux", measures=measures, enough=enough, summary=summary, unsafe=unsafe and not enough)


def no_isolation(reason: str) -> Isolation:
    """The isolation where no code can be run, for this reason."""
    measure = Measure(name="sandbox", works=False, meaning=reason)
    return Isolation(backend="none", measures=(measure,), enough=False, summary=f"there is no sandbox here: {reason}")


def _measures(held: Mapping[str, bool], facts: ServerFacts, no_group: str) -> list[tuple[str, bool, str, str]]:
    """Return for each measure (name, whether it works, what that means for safety, what its absence means)."""
    return [
        (
            "files",
            held.get("files", False) and held.get("writing", False),
            "code sees the interpreter and its libraries, read-only, and no other file"
            + ("" if facts.namespaces else "; it can find out names and sizes of others, but not read them"),
            "code can read or change files of this machine",
        ),
        (
            "network",
            held.get("network", False),
            "no connection, neither to this machine nor elsewhere",
            "code can connect to other machines, and to services of this one",
        ),
        (
            "hosts",
            facts.namespaces,
            "a tool that lists hosts reaches those and nothing else, if an admin allows tools a network",
            "tools that list hosts are refused: without a network namespace they could not be held to them",
        ),
        (
            "system calls",
            held.get("system calls", False),
            "only the system calls that ordinary programs need; none that mount, trace, load or make namespaces",
            "every system call can be made, those that attacks on the kernel use among them",
        ),
        (
            "user",
            held.get("identity", False) and (facts.own_users or facts.namespaces),
            "code runs as a user that owns nothing on this machine"
            if facts.own_users
            else "code runs as this server's user in a user namespace, without any of its rights over what is outside",
            "code runs as the user of this server",
        ),
        (
            "processes",
            facts.namespaces,
            "a call sees its own processes only; they are counted, and end with it",
            "code can't start processes at all, because they could not be ended with it",
        ),
        (
            "work folder",
            facts.namespaces,
            "each call has a folder in memory of limited size, which is gone afterwards",
            "code can't write files: there would be no limit to their size, and no sure end",
        ),
        (
            "landlock",
            facts.landlock > 0,
            f"Landlock (version {facts.landlock}) refuses files and connections a second time, whatever the file system"
            " says",
            "this kernel has no Landlock, or it is turned off: the namespaces are the only wall around files",
        ),
        ("time", True, "a call that takes too long is ended, with all it has started", ""),
        (
            "memory",
            held.get("memory", False),
            "each process of a call has limited memory; five times a second all of them are weighed together, with"
            " their page tables and sockets" + (", so for 0.2 s a call may hold more" if no_group else ""),
            "memory is not limited, or what the kernel holds for a call in buffers is not",
        ),
        (
            "control group",
            not no_group,
            "memory and processes of all calls together are limited by the kernel, with all that it holds for them",
            "the limits of each call hold, but the kernel has none for all calls together, and what it holds for a call"
            f" in buffers and tables is limited by their number only, about 32 MiB for each process: {no_group}",
        ),
    ]
