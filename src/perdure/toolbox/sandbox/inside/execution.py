"""Run one job's source and build the answer that is sent back."""

from __future__ import annotations
import __future__

import ast
import inspect
import io
import mmap
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from .agent_state import AgentState
from .arguments import ArgumentsDoNotFit, bind_arguments
from .errors import describe_error
from .results import NotJson, clean, to_json

SOURCE_NAME = "<tool>"
FRAMES_MAX = 20
LINE_CHARS = 200
ERROR_CHARS = 4_000
NAMES_MAX = 10
BALLAST_BYTES = 4 << 20
"""Address space that is given up when memory has run out, so that the error can still be reported."""

Code = tuple[types.CodeType, types.CodeType | None]
"""The code of a source, and apart from it that of a script's last expression."""


def execute(job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a job: `status`, and where it has them `value`, `error`, `frames`, changed blocks as `agent`."""
    ballast = mmap.mmap(-1, BALLAST_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    source: str = job["source"]
    agent = AgentState(job["agent"]) if job["agent"] is not None else None
    try:
        try:
            code = _compile(source, is_script=job["function"] is None)
        except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
            return _refusal(_describe_syntax_error(error))
        value = _run(code, job, agent)
        answer = {"status": "success", "value": to_json(value, bytes_max=job["result_bytes"])}
        if agent is not None and (changed := agent.memory.changes()):
            answer["agent"] = {label: clean(text) for label, text in changed.items()}
        return answer
    except ArgumentsDoNotFit as error:
        return _refusal(str(error))
    except NotJson as error:
        return {"status": "error", "error": str(error)}
    except MemoryError as error:
        ballast.close()
        limit = f"{job['limits']['memory_mb']:,} MiB"
        return {"status": "memory", "error": f"it needs more memory than {limit}", "frames": _traceback(error, source)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: it is the tool that ended, not this process
        text = describe_error(error, _describe_one)
        return {"status": "error", "error": text, "frames": _traceback(error, source)}


def open_capped(fd: int, bytes_max: int) -> io.TextIOWrapper:
    """A text file that takes everything and writes the first `bytes_max` bytes of it to a descriptor."""
    return io.TextIOWrapper(
        io.BufferedWriter(_CappedFile(fd, bytes_max)), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


class _CappedFile(io.RawIOBase):
    """A file that takes everything and writes only its first bytes."""

    def __init__(self, fd: int, bytes_max: int) -> None:
        self._fd = fd
        self._left = bytes_max

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._left > 0:
            written = os.write(self._fd, view[: self._left])
            self._left -= written
            return written if self._left else len(view)
        return len(view)


def _compile(source: str, *, is_script: bool) -> Code:
    """The code of a source. Raises: SyntaxError, ValueError, RecursionError, OverflowError."""
    if not is_script:
        # Annotations stay texts: clients send functions without the imports that their annotations need.
        flags = __future__.annotations.compiler_flag
        return compile(source, SOURCE_NAME, "exec", flags=flags, dont_inherit=True), None
    tree = ast.parse(source, SOURCE_NAME)
    last = None
    if tree.body and isinstance(end := tree.body[-1], ast.Expr):
        last = compile(ast.Expression(end.value), SOURCE_NAME, "eval", dont_inherit=True)
        tree.body.pop()
    return compile(tree, SOURCE_NAME, "exec", dont_inherit=True), last


def _run(code: Code, job: Mapping[str, Any], agent: object) -> object:
    """What the job's function returns, or the value of a script's last expression."""
    body, last = code
    name = job["function"]
    module = types.ModuleType("__main__" if name is None else "tool")
    sys.modules[module.__name__] = module  # dataclasses and pickle look their classes' modules up
    exec(body, module.__dict__)
    if name is None:
        return None if last is None else _to_json_or_repr(_await(eval(last, module.__dict__)), job["result_bytes"])
    function = module.__dict__.get(name)
    if not callable(function):
        raise ArgumentsDoNotFit(_describe_missing_function(name, module.__dict__))
    return _await(function(**bind_arguments(function, job["arguments"], agent)))


def _await(value: object) -> object:
    """The result of a coroutine; anything else as it is."""
    if not inspect.iscoroutine(value):
        return value
    import asyncio

    return asyncio.run(value)


def _to_json_or_repr(value: object, bytes_max: int) -> object:
    """A value as JSON holds it, else as an interpreter shows it."""
    try:
        return to_json(value, bytes_max=bytes_max)
    except NotJson:
        return repr(value)


def _describe_missing_function(name: str, names: Mapping[str, object]) -> str:
    """That the source has no such function, and which it has."""
    functions = [other for other, value in names.items() if inspect.isfunction(value)]
    has = f"it has {', '.join(functions[:NAMES_MAX])}" if functions else "it has none at its top level"
    return f"the source has no function {name!r}: {has}"


def _refusal(why: str) -> dict[str, Any]:
    """The answer to a job that was not run."""
    return {"status": "refused", "error": clean(why)[:ERROR_CHARS]}


def _describe_syntax_error(error: Exception) -> str:
    """Why a source could not be compiled, with the line if it is known."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        text = f": `{error.text.strip()[:LINE_CHARS]}`" if error.text else ""
        return f"the source does not parse: line {error.lineno}: {error.msg}{text}"
    if isinstance(error, RecursionError | OverflowError):
        return "the source does not parse: it is nested too deeply"
    return f"the source does not parse: {error.msg if isinstance(error, SyntaxError) else error}"


def _describe_one(error: BaseException) -> str:
    """The kind of the error and its message, even if making the message fails."""
    kind = clean(type(error).__name__)[:LINE_CHARS]
    if isinstance(error, SystemExit):
        return "the code ended itself with sys.exit: return a value instead"
    try:
        message = str(error)
        message = clean(message if type(message) is str else str.__str__(message))
    except BaseException as second:
        message = f"(its message can't be shown: {type(second).__name__})"
    if len(message) > ERROR_CHARS:
        message = f"{message[:ERROR_CHARS]}… ({len(message) - ERROR_CHARS:,} more characters)"
    return f"{kind}: {message}" if message else kind


def _traceback(error: BaseException, source: str) -> list[tuple[int, str, str]]:
    """(line, function, text) of the lines of the source that the error came through, outermost first."""
    lines = source.splitlines()
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        code, line = traceback.tb_frame.f_code, traceback.tb_lineno
        if code.co_filename == SOURCE_NAME:
            text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
            frames.append((line, clean(code.co_name)[:LINE_CHARS], clean(text)[:LINE_CHARS]))
        traceback = traceback.tb_next
    return frames if len(frames) <= FRAMES_MAX else frames[: FRAMES_MAX // 2] + frames[-FRAMES_MAX // 2 :]
