"""`index_output`: what a program prints, or a file or page holds, is stored whole; the model sees a few lines of it.

`run_code` runs a program; both use the sandbox.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from perdure.core.errors import InvalidArguments
from perdure.core.ids import AgentId
from perdure.core.messages import ToolStatus
from perdure.core.nodes import UNNUMBERED_HANDLE
from perdure.core.ports import TokenCounter
from perdure.core.sources import Source
from perdure.core.specs import ToolOutcome
from perdure.core.tools.sandbox import Sandbox, SandboxJob, SandboxLimits, SandboxResult
from perdure.scratch import scratch_folder
from perdure.toolbox.builtin.fetch_webpage import WebPages

PYTHON_NAMES = frozenset({"python", "py", "python3"})


async def run_code(sandbox: Sandbox, arguments: Mapping[str, Any], *, owner: str) -> ToolOutcome:
    """Run `arguments["code"]` for an agent; return output, last line's value, error. Raises: SandboxUnavailable."""
    language = str(arguments.get("language") or "python").strip().lower()
    if language not in PYTHON_NAMES:
        text = f"code in {language[:40]!r} was not run: only Python can be run safely here. Write it in Python."
        return ToolOutcome(text=text, status="error")
    result = await sandbox.run(SandboxJob(source=str(arguments["code"]), owner=owner))
    return ToolOutcome(text=render_result(result), status="success" if result.status == "success" else "error")


def render_result(result: SandboxResult) -> str:
    """The result as text for the model, a section for each part that is not empty."""
    value = "" if result.value is None else result.value
    parts = [
        ("stdout", result.stdout),
        ("stderr", result.stderr),
        ("value", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)),
        ("error", render_error(result)),
    ]
    sections = [f"{name}:\n{text.rstrip()}" for name, text in parts if text.strip()]
    return (
        "\n\n".join(sections) or "It ran, printed nothing, and its last line has no value. print(...) shows something."
    )


def render_error(result: SandboxResult) -> str:
    """The traceback and the error of a job; empty if it succeeded."""
    if result.status == "success":
        return ""
    lines = [f"  line {frame.line}, in {frame.function}: {frame.text}" for frame in result.traceback]
    return "\n".join([*lines, result.error or f"it ended with {result.status}"])


NAME = "index_output"
KEPT_CHARS = 2_000_000
"""The most characters that are stored of one output."""
SMALL_TOKENS = 400
"""An output of so many tokens or fewer is shown whole: less could not be saved by searching it."""
EDGE_LINES, LINE_CHARS, ERROR_CHARS = 4, 160, 1_000
SHOWN_CHARS = 4_000
"""The most characters that the model sees, also after a text was erased from the output."""
BINARY_SHARE, BINARY_SAMPLE = 0.1, 20_000

LoadFile = Callable[[AgentId, str, int], Awaitable[tuple[str, str]]]
"""Loads (path, text) of an agent's file by the name that a model gives, at most so many characters of it."""


class OutputIndex:
    """Stores outputs for `search_output`. `sandbox` runs programs (None: `command` is refused), `pages` reads pages of
    the web, and `load_file` the agent's files."""

    def __init__(
        self, sandbox: Sandbox | None, pages: Callable[[], WebPages], load_file: LoadFile, counter: TokenCounter
    ) -> None:
        self._sandbox, self._pages, self._load_file, self._counter = sandbox, pages, load_file, counter

    async def index(self, arguments: Mapping[str, Any], *, owner: AgentId) -> ToolOutcome:
        """Store what a program prints, or a file or page holds, for the agent `owner`: the outcome has the whole text,
        and what the model sees of it.

        Args:
            arguments: `command`, a program; `file`, by itself or as the program's input; `url`, by itself.
        Raises: InvalidArguments, ToolError, AddressRefused, SandboxUnavailable.
        """
        command, file, url = (str(arguments.get(name) or "").strip() for name in ("command", "file", "url"))
        if not (command or file or url) or (url and (command or file)):
            raise InvalidArguments(NAME, "give a command, a file, a command that reads the file, or a url")
        if url:
            page = await self._pages().read(url)
            if page.problem:
                return ToolOutcome(text=page.problem, status="error", sources=page.sources)
            return replace(await self._outcome(page.text, source=page.heading), sources=page.sources)
        path, text = await self._load_file(owner, file, KEPT_CHARS) if file else ("", "")
        if not command:
            return replace(await self._outcome(text, source=f"File {path}."), sources=(Source.of("file", path),))
        result = await self._run(command, text if file else None, owner)
        only_printed = result.status == "success" and result.value is None and not result.stderr.strip()
        output = result.stdout if only_printed else render_result(result)
        return await self._outcome(output, source="", error=render_error(result).strip())

    async def _run(self, command: str, text: str | None, owner: AgentId) -> SandboxResult:
        """The result of a program, which reads `text` from its standard input; None: there is nothing to read."""
        if self._sandbox is None:
            raise InvalidArguments(NAME, "there is no sandbox here, so no command is run")
        limits = SandboxLimits(output_chars=KEPT_CHARS)
        if text is None:
            return await self._sandbox.run(SandboxJob(source=command, owner=owner, limits=limits))
        with scratch_folder("output") as folder:
            file = folder / "input"
            await asyncio.to_thread(file.write_text, text, encoding="utf-8", errors="replace", newline="")
            return await self._sandbox.run(SandboxJob(source=command, owner=owner, limits=limits, input=file))

    async def _outcome(self, text: str, *, source: str, error: str = "") -> ToolOutcome:
        """The outcome of an output; `source` and `error` as in `show_output`. One that is no text is refused."""
        if len(text) > KEPT_CHARS:
            text = f"{text[:KEPT_CHARS]}\n[cut here: only the first {KEPT_CHARS:,} characters are kept]"
        if not text.strip():
            return ToolOutcome(text=f"{source} There is no output, so nothing was indexed.".strip())
        # Bytes that stand for no characters.
        sample = text[:BINARY_SAMPLE]
        odd = sum(char == "\ufffd" or (char < " " and char not in "\t\n\r\f\b\x1b") for char in sample)
        if odd > BINARY_SHARE * len(sample):
            problem = f"the output of {len(text):,} characters is not text, so nothing was indexed: decode or hash it"
            return ToolOutcome(text=problem, status="error")
        shown, tokens = await asyncio.to_thread(show_output, text, self._counter, source=source, error=error)
        status: ToolStatus = "error" if error else "success"
        if shown is None:
            return ToolOutcome(text=f"{source}\n\n{text}" if source else text, status=status)
        return ToolOutcome(text=text, status=status, shown_text=shown, shown_chars=SHOWN_CHARS, whole_tokens=tokens)


def show_output(text: str, counter: TokenCounter, *, source: str, error: str) -> tuple[str | None, int]:
    """Return (the part of an output that the model sees, None: all of it; its tokens). `source`: the name of the
    output, empty for a program's; `error`: why that program failed."""
    tokens = counter.count(text)
    if tokens <= SMALL_TOKENS:
        return None, tokens
    lines = text.rstrip("\n").split("\n")
    numbered = [f"{number}| {_clip(line)}" for number, line in enumerate(lines[:EDGE_LINES], start=1)]
    last = range(max(len(numbered), len(lines) - EDGE_LINES), len(lines))
    if len(lines) > 2 * EDGE_LINES:
        numbered.append("…")
    numbered += [f"{number + 1}| {_clip(lines[number])}" for number in last]
    body = "\n".join(
        [
            *([source] if source else []),
            *([f"The program failed: {error[:ERROR_CHARS]}"] if error else []),
            *numbered,
            f'[search_output("{UNNUMBERED_HANDLE}", query) shows the passages about something;'
            f' context_expand("{UNNUMBERED_HANDLE}", lines or grep) what stands there]',
        ]
    )
    shown_tokens = counter.count(body) + len("[]") + 20
    saved = max(0, 1_000 - -(-1_000 * shown_tokens // tokens)) / 10  # rounded down: never 100 %
    return f"[{tokens:,} tokens indexed, {shown_tokens:,} shown: {saved:.1f} % saved]\n{body}", tokens


def _clip(line: str) -> str:
    """The line, cut if it is long."""
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}… [{len(line):,} characters]"
