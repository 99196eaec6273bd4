"""What holds code back on this machine, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perdure.core.tools.sandbox import Isolation, Measure

_REQUIRED = frozenset({"files", "writing", "network", "identity", "system calls", "processes", "memory"})


def isolation_of(
    held: Mapping[str, bool],
    *,
    namespaces: bool,
    landlock: int,
    root: bool,
    problem: str,
    unsafe: bool,
    no_group: str,
) -> Isolation:
    """The isolation of a fork server that was started and checked.

    Args:
        held: what the check found.
        landlock: the version of Landlock; 0: none.
        root: whether calls get user ids of their own.
        problem: what went wrong in the check; empty if nothing did.
        no_group: why the calls have no control group around them; empty if they have.
    """
    measures = tuple(_measures(held, namespaces=namespaces, landlock=landlock, root=root, no_group=no_group))
    enough = not problem and all(held.get(name) for name in _REQUIRED)
    if problem:
        summary = f"code is not held back: the check of the sandbox failed ({problem})"
    elif not enough:
        missing = sorted(name for name in _REQUIRED if not held.get(name))
        summary = f"code is not held back well enough: {', '.join(missing)}"
    elif namespaces:
        beside = f" and Landlock (version {landlock})" if landlock else "; without Landlock as a second wall"
        summary = f"code runs in namespaces of its own, behind a filter of system calls{beside}"
    else:
        summary = (
            f"code runs behind Landlock (version {landlock}) and a filter of system calls, without namespaces:"
            " it can start no process and write no file"
        )
    return Isolation(backend="linux", measures=measures, enough=enough, summary=summary, unsafe=unsafe and not enough)


def no_isolation(why: str) -> Isolation:
    """Where no code can be run."""
    held = Measure(name="sandbox", held=False, meaning=why)
    return Isolation(backend="none", measures=(held,), enough=False, summary=f"there is no sandbox here: {why}")


def _measures(
    held: Mapping[str, bool], *, namespaces: bool, landlock: int, root: bool, no_group: str
) -> Iterator[Measure]:
    def one(name: str, holds: bool, yes: str, no: str) -> Measure:
        return Measure(name=name, held=holds, meaning=yes if holds else no)

    yield one(
        "files",
        held.get("files", False) and held.get("writing", False),
        "code sees the interpreter and its libraries, read-only, and no other file"
        + ("" if namespaces else "; it can find out names and sizes of others, but not read them"),
        "code can read or change files of this machine",
    )
    yield one(
        "network",
        held.get("network", False),
        "no connection, neither to this machine nor elsewhere",
        "code can connect to other machines, and to services of this one",
    )
    yield one(
        "hosts",
        namespaces,
        "a tool that lists hosts reaches those and nothing else, if an admin allows tools a network",
        "tools that list hosts are refused: without a network namespace they could not be held to them",
    )
    yield one(
        "system calls",
        held.get("system calls", False),
        "only the system calls that ordinary programs need; none that mount, trace, load or make namespaces",
        "every system call can be made, those that attacks on the kernel use among them",
    )
    yield one(
        "user",
        held.get("identity", False) and (root or namespaces),
        "code runs as a user that owns nothing on this machine"
        if root
        else "code runs as this server's user in a user namespace, without any of its rights over what is outside",
        "code runs as the user of this server",
    )
    yield one(
        "processes",
        namespaces,
        "a call sees its own processes only; they are counted, and end with it",
        "code can't start processes at all, because they could not be ended with it",
    )
    yield one(
        "work folder",
        namespaces,
        "each call has a folder in memory of limited size, which is gone afterwards",
        "code can't write files: there would be no limit to their size, and no sure end",
    )
    yield one(
        "landlock",
        landlock > 0,
        f"Landlock (version {landlock}) refuses files and connections a second time, whatever the file system says",
        "this kernel has no Landlock, or it is turned off: the namespaces are the only wall around files",
    )
    yield one("time", True, "a call that takes too long is ended, with all it has started", "")
    yield one(
        "memory",
        held.get("memory", False),
        "each process of a call has limited memory; five times a second all of them are weighed together, with their"
        " page tables and sockets" + (", so for 0.2 s a call may hold more" if no_group else ""),
        "memory is not limited, or what the kernel holds for a call in buffers is not",
    )
    yield one(
        "control group",
        not no_group,
        "memory and processes of all calls together are limited by the kernel, with all that it holds for them",
        "the limits of each call hold, but the kernel has none for all calls together, and what it holds for a call in"
        f" buffers and tables is limited by their number only, about 32 MiB for each process: {no_group}",
    )
