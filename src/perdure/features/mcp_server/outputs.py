"""Large texts that a client keeps out of its window: stored as files in the folder of the agent, asked of later; and
shell lines that a client has run for such a text, where the person who started the server allows it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.context.sections.expand import Budget
from perdure.core.errors import InvalidInput, NotFound, ToolError
from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import REDACTED, Redactor
from perdure.core.ids import AgentId
from perdure.core.text.credentials import PRIVATE_KEY, without_credentials
from perdure.core.text.reprs import plural
from perdure.domain.conversations.patterns import Pattern, PatternSlow
from perdure.domain.tools.context_tools import LOOK_UP
from perdure.features.mcp_server.listing import line_of
from perdure.features.notes.folders import data_folder, make_folder
from perdure.scratch import remove_leftovers, replace_file, scratch_folder, user_path
from perdure.toolbox.processes import end_group, end_marked, start_group

OUTPUT_BYTES = 20_000_000
OUTPUTS_MAX, OUTPUTS_BYTES = 100, 400_000_000
"""The most stored texts of a project, and their size together: with more, the oldest go."""
FOLDER = "outputs"
FIRST_LINES, LINE_CHARS, TITLE_CHARS = 5, 160, 200
SLICE_CHARS, KEY_CHARS = 20_000, 200_000
"""An output is masked in slices of about this length: others are answered meanwhile. No private key is longer."""
_FOLDER = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)  # its names need not be readable
_MARK = re.compile(r"[,;\"'(){}<>\[\]]")
_HANDLE = re.compile("(?:output:)?([0-9]{1,9})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SHELL_S, OUTPUT_S, POLL_S = 600.0, 0.5, 0.05
"""The most time of a line, and what it leaves to read when its shell has ended; how often its end is looked for."""
MARK = "PERDURE_COMMAND"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOutput:
    """A stored text: its number in the project, and what it is."""

    number: int
    title: str
    chars: int
    lines: int

    @property
    def handle(self) -> str:
        """How tools name it, such as `output:3`."""
        return f"output:{self.number}"

    def describe(self, text: str) -> str:
        """Return a short summary of the text: size, the first and last lines, how to ask."""
        if self.lines > 2 * FIRST_LINES:
            first, last = text.split("\n", FIRST_LINES)[:-1], text.rsplit("\n", FIRST_LINES)[1:]
            lines = [*first, f"... {self.lines - 2 * FIRST_LINES:,} lines ...", *last]
        else:
            lines = text.split("\n")
        head = f"{self.handle} {self.title}: {self.lines:,} lines, {self.chars:,} characters.".replace(" :", ":")
        shown = [line[:LINE_CHARS] for line in lines]
        return "\n".join([head, *shown, f"Ask with search_output(output='{self.handle}', query=... or grep=...)."])


def read_file(path: str, roots: Sequence[Path]) -> str:
    """Return the text of a file inside one of these folders; bytes that are no UTF-8 are replaced. Relative paths begin
    in the first. Raises: InvalidInput: outside the roots, no file, too large."""
    roots = [root.resolve() for root in roots]
    base = roots[0] if roots else Path.cwd()
    try:
        found = (base / user_path(path)).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"path {path!r:.200} can't be read ({getattr(error, 'strerror', None) or error})") from error
    root = next(filter(found.is_relative_to, roots), None)
    if root is None:
        allowed = ", ".join(map(str, roots)) or "none"
        raise InvalidInput(f"path {path!r:.200} is outside the allowed folders ({allowed}): start with --root DIR")
    try:
        with open(found, "rb", opener=lambda *_: _open_below(root, found.relative_to(root))) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidInput(f"path {path!r:.200} is not a regular file")
            if status.st_size > OUTPUT_BYTES:
                raise InvalidInput(f"{path!r:.200} has {status.st_size:,} bytes, the limit is {OUTPUT_BYTES:,}")
            return file.read(OUTPUT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise InvalidInput(f"path {path!r:.200} can't be read ({error.strerror})") from error


def _open_below(root: Path, path: Path) -> int:
    """Return the descriptor of a file below a folder. Raises: OSError: also where a link stands by now in place of the
    file or a folder on the way to it."""
    folder = os.open(root, _FOLDER)
    try:
        for name in path.parts[:-1]:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        # A pipe or a device would never end: without waiting, and only a regular file is read.
        return os.open(path.name or ".", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)


class Outputs:
    """The stored texts of an agent.

    Args:
        folder: see `ProjectMemory.state_of`.
        forgotten: what the agent has forgotten, which is not shown in what was stored before.
    """

    def __init__(self, folder: Path, forgotten: Sequence[Correction] = ()) -> None:
        self._folder = folder / FOLDER
        self._hidden = [
            (Redactor(one.needle), one.created_at.timestamp()) for one in forgotten if one.needle != REDACTED
        ]

    def store(self, text: str, title: str) -> StoredOutput:
        """Store a text; return what it is. Raises: InvalidInput: it is empty or too large; ToolError: the disk."""
        data = text.encode("utf-8", "replace")
        if not text.strip():
            raise InvalidInput("the text is empty: there is nothing to index")
        if len(data) > OUTPUT_BYTES:
            raise InvalidInput(f"the text has {len(data):,} bytes, the limit is {OUTPUT_BYTES:,}: index parts of it")
        title = line_of(_CONTROL.sub(" ", title))[:TITLE_CHARS]
        head: dict[str, Any] = {"title": title, "chars": len(text), "lines": text.count("\n") + 1}
        try:
            number = self._write(json.dumps(head).encode() + b"\n" + data)
            self._delete_oldest()
        except OSError as error:
            why = f"the output can't be stored in {self._folder} ({error.strerror or error})"
            raise ToolError(f"{why}. Nothing was stored.") from error
        return StoredOutput(number=number, **head)

    def _write(self, data: bytes) -> int:
        """Write a file atomically under the next number; return the number."""
        make_folder(self._folder)
        with scratch_folder("output", parent=self._folder) as folder:
            new = folder / "text"
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            number = max(self._numbers(), default=0) + 1
            while True:
                try:
                    os.link(new, self._folder / str(number))  # fails where another process took the number
                    return number
                except FileExistsError:
                    number += 1

    def _delete_oldest(self) -> None:
        """Delete the oldest texts beyond the limits, and what processes left that ended while they wrote."""
        room = OUTPUTS_BYTES
        for place, number in enumerate(sorted(self._numbers(), reverse=True)):
            file = self._folder / str(number)
            with suppress(FileNotFoundError):  # another process deletes too
                room -= file.stat().st_size
                if place and (place >= OUTPUTS_MAX or room < 0):
                    file.unlink()
        remove_leftovers(self._folder)

    def list(self, limit: int) -> Sequence[StoredOutput]:
        """Return the stored texts, the newest first."""
        numbers = sorted(self._numbers(), reverse=True)[:limit]
        return [found for number in numbers if (found := self._head(number)) is not None]

    def text(self, handle: str) -> str:
        """Return the text of a handle. Raises: NotFound."""
        if number := _HANDLE.fullmatch(handle.strip()):
            with suppress(FileNotFoundError):
                path = self._folder / number[1]
                text = path.read_bytes().decode("utf-8", "replace").partition("\n")[2]
                return self._hide(text, path.stat().st_mtime)
        hint = "memory_list(kind='outputs') shows those that are kept"
        raise NotFound("output", f"{handle:.80}", hint=hint)

    def _numbers(self) -> Sequence[int]:
        return [int(one.name) for one in self._folder.glob("[0-9]*") if one.name.isdecimal()]

    def _head(self, number: int) -> StoredOutput | None:
        """Return what is known of an output; None: it was deleted."""
        try:
            with (self._folder / str(number)).open("rb") as file:
                head = self._hide(file.readline().decode("utf-8", "replace"), os.fstat(file.fileno()).st_mtime)
                return StoredOutput(number=number, **json.loads(head))
        except (OSError, ValueError, TypeError):
            return None  # deleted meanwhile

    def _hide(self, text: str, stored_at: float) -> str:
        """Return a text that was stored at this time without what was forgotten since."""
        for redactor, at in self._hidden:
            text = redactor.redact(text) if stored_at < at else text
        return text


def _files_of(agent_id: AgentId) -> Sequence[Path]:
    """The files of an agent's outputs, those over HTTP too."""
    return [*data_folder().glob(f"projects/*/*/*{agent_id}/{FOLDER}/[0-9]*")]


def say_kept(agent_id: AgentId) -> str:
    """Say that an agent's outputs are not searched for a text that is to be forgotten; empty: it has none."""
    if not (count := len(_files_of(agent_id))):
        return ""
    return (
        f"{plural(count, 'kept output')} of index_output may have it too and {'is' if count == 1 else 'are'} not"
        " searched: what is forgotten here reads [redacted] there."
    )


def erase_in_outputs(agent_id: AgentId, text: str) -> None:
    """Replace an erased text in the outputs of an agent. A handle keeps its output."""
    redactor = Redactor(text)
    for path in _files_of(agent_id):
        with suppress(FileNotFoundError):  # another process deletes too
            head, _, body = path.read_bytes().decode("utf-8", "replace").partition("\n")
            if redactor.finds(head) or redactor.finds(body):
                stored = path.stat()
                replace_file(path, f"{redactor.redact_record(head)}\n{redactor.redact(body)}".encode())
                os.utime(path, ns=(stored.st_atime_ns, stored.st_mtime_ns))  # see `_hide`


def mask_output(text: str) -> str:
    """Return an output without what has the form of a credential. What a word beside it calls one stays: such words are
    everywhere in logs, as in `tokens=1500`."""
    parts, start = list[str](), 0
    while start < len(text):
        end = _slice_end(text, start)
        parts.append(without_credentials(text[start:end], named=False))
        start = end
    return "".join(parts)


def _slice_end(text: str, start: int) -> int:
    """Return the end of a slice: after a line, else where no credential is cut; never inside a private key."""
    least, most = start + SLICE_CHARS, start + 2 * SLICE_CHARS
    if least >= len(text):
        return len(text)
    end = text.find("\n", least, most) + 1
    if not end:
        mark = _MARK.search(text, least, most)
        end = mark.end() if mark else min(most, len(text))
    begin = text.rfind("-----BEGIN ", start, end)
    if begin >= 0 and (key := PRIVATE_KEY.match(text, begin, begin + KEY_CHARS)) and key.end() > end:
        return begin if begin > start else key.end()
    return end


def ask_output(text: str, arguments: dict[str, Any], budget: Budget) -> str:
    """Return the part of a text that was asked for. Raises: ToolError: an argument can't be used; InvalidInput."""
    asked = {name: arguments[name] for name in ("query", "grep", "lines", "where", "path") if arguments.get(name)}
    if not asked:
        raise InvalidInput("nothing is asked: give query, grep, lines, where or path")
    text = text.replace("\r\n", "\n")  # else `$` of a pattern finds no line's end
    # A pattern may take for ever: this one has a limit, and a server must not stand still for it.
    matches = Pattern(asked.pop("grep")).has if "grep" in asked else None
    try:
        answers = LOOK_UP(text, **asked, matches=matches, max_tokens=budget.tokens, count=budget.counter.count)
    except PatternSlow as error:
        raise ToolError("the pattern takes too long: use a simpler one") from error
    if answers:
        return budget.cut(str(answers[0]))
    # Nothing is there that reads more than lines with a text.
    if not (needle := asked.get("query") or arguments.get("grep")):
        raise ToolError("nothing here reads lines, tables or JSON: ask by query")
    lines = [
        f"{number}| {line}" for number, line in enumerate(text.split("\n"), 1) if needle.casefold() in line.casefold()
    ]
    return budget.cut("\n".join(lines) or f"No line has {needle!r:.80}.")


@dataclass(frozen=True, slots=True)
class ShellRun:
    """A shell command with its output, and a sentence about how it ended."""

    line: str
    output: str
    end: str


async def run_shell(line: str, folder: Path, *, limit_s: float = SHELL_S) -> ShellRun:
    """Run a line with `/bin/sh` in a folder. It has ended when the shell has; what it left in the background ends with
    it, as at the limit of time, and when the caller is cancelled: its process group, and on Linux what left that and
    still has the variable `PERDURE_COMMAND` from its start. Raises: ToolError: it can't be started."""
    # In a task of its own: the SDK cancels a call again at each wait, and ending the processes needs some.
    running = asyncio.ensure_future(_run(line, folder, limit_s))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        raise


async def _run(line: str, folder: Path, limit_s: float) -> ShellRun:
    """Run a shell line in a folder, for at most `limit_s` seconds. Raises: ToolError: it can't be started."""
    pipe, merged, empty = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL
    mark = secrets.token_hex()
    ours = {**os.environ, MARK: mark}
    try:
        process = await start_group(
            "/bin/sh", "-c", line, cwd=folder, env=ours, stdin=empty, stdout=pipe, stderr=merged
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"the command can't be started ({error})") from error
    assert process.stdout is not None
    printed = _Printed(bytearray())
    reading = asyncio.ensure_future(printed.read(process.stdout))
    try:
        async with asyncio.timeout(limit_s):
            while process.returncode is None:  # `wait` also waits for all that still hold the pipe
                await asyncio.wait((reading,), timeout=POLL_S)
                await asyncio.sleep(POLL_S if reading.done() and process.returncode is None else 0)
            await asyncio.wait((reading,), timeout=OUTPUT_S)
        code = process.returncode
        end = f"It ended with exit code {code}." if code >= 0 else f"It was ended by signal {-code}."
    except TimeoutError:
        end = f"It was stopped after {limit_s:g} s; this is what it printed until then."
    finally:
        reading.cancel()
        await end_group(process)
        await asyncio.to_thread(end_marked, f"{MARK}={mark}")
    if printed.size > OUTPUT_BYTES:
        end += f" It printed {printed.size:,} bytes, of which the first {OUTPUT_BYTES:,} are kept."
    return ShellRun(line, printed.kept.decode("utf-8", "replace"), end)


@dataclass(slots=True)
class _Printed:
    """The output of a command: the bytes kept, and how many there were."""

    kept: bytearray
    size: int = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read to the end; drop bytes over the limit, so that the command does not block."""
        while piece := await stream.read(65_536):
            self.size += len(piece)
            self.kept += piece[: OUTPUT_BYTES - len(self.kept)]
