"""Running somebody's Python code without trusting it: what goes in, what comes out, its hosts, and the port.

What is measured and enforced is an adapter's; here are the values only. The `linux` adapter is `toolbox/sandbox`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from perdure.core.errors import InvalidInput
from perdure.core.incoming.addresses import find_address
from perdure.core.text.json_strings import json_start

REQUIREMENT_CHARS_MAX = 200

_PACKAGE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:==|!=|<=|>=|~=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(
    rf"{_PACKAGE}\s*(?:\[\s*{_PACKAGE}(?:\s*,\s*{_PACKAGE})*\s*\])?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?"
)

SandboxStatus = Literal["success", "error", "timeout", "memory", "crash", "refused"]
"""How a job ended.

`success`: `value` is what it returned. `error`: the code raised, or returned what JSON can't hold. `timeout`: it took
longer, or more processor time, than it may. `memory`: it wanted more memory than it may have. `crash`: its process
ended without an answer, or broke a limit that ends it. `refused`: it was not run: the source doesn't parse, has no such
function, the arguments don't fit it, its requirements can't be had, or it wants a network and may not have one.
"""

READING_BYTES = 1_500_000_000
"""How much memory the reading of a file or page may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The most that one job in the sandbox may use.

    Args:
        wall_s: from its start to its result, in seconds. Waiting for a free place does not count.
        cpu_s: processor time of each process, in seconds; None: as `wall_s`.
        memory_mb: address space of each process, in MiB.
        output_chars: each of `stdout` and `stderr`; longer output is cut, with a note.
        result_bytes: the result as JSON; a larger result is an error.
        disk_mb: content of its work folder, in MiB. The folder is in memory, and gone after the job.
        files: files and folders in its work folder.
        processes: processes and threads it may have at a time.
    """

    wall_s: float = 30.0
    cpu_s: float | None = None
    memory_mb: int = 512
    output_chars: int = 50_000
    result_bytes: int = 4_000_000
    disk_mb: int = 64
    files: int = 1_000
    processes: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxJob:
    """One piece of code to run.

    Args:
        source: Python, a whole module.
        function: which of its functions is called. None: the source is a script, and the value of its last line, if
            that is an expression, is the result.
        arguments: of the function, by name, as JSON holds them. They travel as data, never as source.
        environment: all environment variables that the code sees, but HOME, TMPDIR, PATH, LANG, TZ and the number of
            threads for numeric libraries, 1.
        agent: what a function that has a parameter `agent_state` gets: `{"id": ..., "name": ..., "blocks": {label:
            value}}`, and whatever else of JSON. None: such a function gets None.
        requirements: of pip, `name` or `name==1.2`; they are installed once for each set.
        network: the hosts that it may reach through a proxy, as `core.tools.hosts` has them; none by default. The
            adapter's owner may refuse it.
        input: a file that the code reads as its standard input, from its beginning; None: that is empty.
        owner: the id of the agent whose job it is: jobs of one owner must not keep all others waiting. Empty: none.
    """

    source: str
    function: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    agent: Mapping[str, Any] | None = None
    requirements: tuple[str, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    network: tuple[str, ...] = ()
    input: Path | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ToolFrame:
    """One entry of a traceback: `line` is a number in the job's own source, `text` is that line."""

    line: int
    function: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """The result of a job. Everything in it but `seconds` is the code's own claim: treat it as untrusted text.

    Args:
        value: what was returned: None, bool, int, float, str, list, dict with str keys.
        error: for the model: what went wrong and what helps; empty with `success`.
        traceback: the lines of the job's source that led to the error.
        stdout, stderr: what was printed, within the limit, as valid Unicode.
        agent: the blocks that the code changed, label -> new value; None: it changed none.
        seconds: how long it took, from its start.
    """

    status: SandboxStatus
    value: Any = None
    error: str = ""
    traceback: tuple[ToolFrame, ...] = ()
    stdout: str = ""
    stderr: str = ""
    agent: Mapping[str, str] | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A protection of the sandbox, whether it works on this machine, and what that means in plain words."""

    name: str
    works: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Which protections of the sandbox work on this machine; each was tried.

    Args:
        backend: "linux", or "none" where there is no sandbox.
        enough: whether they suffice to run untrusted code. If not, `run` raises `SandboxUnavailable`.
        summary: one sentence.
        unsafe: code runs although they do not suffice, because a setting allows it.
    """

    backend: str
    measures: tuple[Measure, ...]
    enough: bool
    summary: str
    unsafe: bool = False


class Sandbox(Protocol):
    """Runs untrusted code."""

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        """Run a job to its end. Whatever the code does is a result; cancelling ends the code.

        Args:
            lines: gets each line that the code prints, at once, within the limit of output.
            progress: gets lines about longer steps, such as the installation of requirements.

        Raises: SandboxUnavailable: the isolation does not suffice, or the sandbox can't be started.
        """

    async def isolation(self) -> Isolation:
        """Return the isolation of this machine. The first call tries it, which takes about 0.1 s."""

    async def close(self) -> None:
        """End every job and all processes."""


def is_requirement(text: str) -> bool:
    """Return whether `text` is a pip requirement by name, with or without versions: no address, path or option."""
    return len(text) <= REQUIREMENT_CHARS_MAX and _REQUIREMENT.fullmatch(text.strip()) is not None


EVERY_HOST = "*"
HOSTS_MAX = 100
_ENTRY_CHARS = 262
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_ENTRY = re.compile(rf"(?P<host>\*|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?")

_FORM = "give hosts such as api.example.org, *.example.com or db.example.net:5432, or * for every public host"


def check_hosts(value: object) -> tuple[str, ...]:
    """Return the hosts of a tool's `network` in lower case, each once. Raises: InvalidInput: also for True."""
    if value is None or value is False:
        return ()
    if value is True:
        raise InvalidInput(f"network is true, which does not say where a tool may connect to: {_FORM}")
    if isinstance(value, str) or not isinstance(value, Collection):
        raise InvalidInput(f"network is {json_start(value)}: {_FORM}")
    if len(value) > HOSTS_MAX:
        raise InvalidInput(f"network lists {len(value):,} hosts, the limit is {HOSTS_MAX}")
    return tuple(dict.fromkeys(_check(entry) for entry in value))


def listed_ports(hosts: Sequence[str], host: str, *, web: Collection[int]) -> tuple[frozenset[int], bool]:
    """Return (the ports of `host` that `hosts` allow, whether an entry names the host itself and is no pattern).

    Args:
        hosts: from `check_hosts`.
        host: in lower case, an IPv6 address without brackets.
        web: the ports that an entry without a port allows.
    """
    ports: set[int] = set()
    named = False
    for entry in hosts:
        if (match := _ENTRY.fullmatch(entry)) is None:
            continue
        pattern = match["host"].strip("[]")
        exact = pattern == host
        if exact or pattern == EVERY_HOST or (pattern.startswith("*.") and host.endswith(pattern[1:])):
            ports |= set(web) if match["port"] is None else {int(match["port"])}
            named = named or exact
    return frozenset(ports), named


def _check(entry: object) -> str:
    """Return one entry of `network` in lower case after checking it. Raises: InvalidInput."""
    if isinstance(entry, str) and len(entry) <= _ENTRY_CHARS:
        text = entry.strip().lower()
        match = _ENTRY.fullmatch(text)
        if match is not None and _is_host(match["host"]) and 0 < int(match["port"] or 1) <= 65_535:
            return text
    raise InvalidInput(f"network lists {entry!r:.80}, which is not a host: {_FORM}")


def _is_host(text: str) -> bool:
    """Return whether the text is a name, a pattern or an address; 1.2.3 and 0x7f.1 are none."""
    last = text.rsplit(".", 1)[-1]
    if text.startswith("[") or last.isdigit() or last.startswith("0x"):
        return find_address(text.strip("[]")) is not None and (":" in text) == text.startswith("[")
    return True
