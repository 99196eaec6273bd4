"""The few lines of git's smart HTTP protocol that this server reads and writes itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.errors import InvalidInput
from perdure.features.memory_git.values import BRANCH, PushRefused

SERVICES = ("git-upload-pack", "git-receive-pack")
FLUSH = b"0000"
_LINE_MAX, _GONE = 60_000, "0" * 40


@dataclass(frozen=True, slots=True)
class PushOrder:
    """What a client wants of a push.

    Args:
        old: the commit of the branch that it knows.
        capabilities: the words by which it says what it understands.
    """

    refs: Sequence[str]
    old: str
    deletes: bool
    capabilities: frozenset[str]

    @property
    def problem(self) -> str:
        """Why such a push is refused, whatever it brings; empty: it is not."""
        if self.refs and list(self.refs) != [BRANCH]:
            return "only the branch main is memory"
        return "the branch main can't be deleted" if self.deletes else ""


def packet(data: bytes) -> bytes:
    """A line as the protocol sends it."""
    return f"{len(data) + 4:04x}".encode() + data


def read_order(body: bytes) -> PushOrder:
    """Return what a push asks for, the lines before its pack. Raises: InvalidInput: it is no push."""
    refs: list[str] = []
    capabilities: set[str] = set()
    old, deletes, at = "", False, 0
    while body and (size := _size_at(body, at)) > 0:
        line, _, words = body[at + 4 : at + size].partition(b"\0")
        at += size
        capabilities |= set(words.decode("utf-8", "replace").split())
        parts = line.decode("utf-8", "replace").split()
        if len(parts) == 3:
            old, ref = parts[0], parts[2]
            refs.append(ref)
            deletes |= parts[1] == _GONE
    return PushOrder(refs, old, deletes, frozenset(capabilities))


def _size_at(body: bytes, at: int) -> int:
    """The length of the line at a place; 0: the list ends. Raises: InvalidInput."""
    try:
        size = int(body[at : at + 4], 16)
    except ValueError:
        raise InvalidInput("the body is no push of git") from None
    if size in (1, 2, 3) or at + size > len(body):
        raise InvalidInput("the body is no push of git")
    return size


def refusal(order: PushOrder, error: Exception) -> bytes:
    """The answer to a push that is refused: git shows the reason beside each branch, and the problems above."""
    reason = error.reason if isinstance(error, PushRefused) else str(error)
    lines = [packet(b"unpack ok\n")]
    lines += [packet(f"ng {ref} {' '.join(reason.split())[:500]}\n".encode()) for ref in order.refs]
    report = b"".join(lines) + FLUSH
    if "side-band-64k" not in order.capabilities:
        return report
    problems = error.problems if isinstance(error, PushRefused) else ()
    said = [packet(b"\x02" + f"{problem}\n".encode()[:_LINE_MAX]) for problem in problems]
    return b"".join(said) + packet(b"\x01" + report) + FLUSH
