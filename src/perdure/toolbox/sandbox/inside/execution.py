"""Run one job's source and say what came of it, as a plain answer that can be sent."""

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
from .arguments import Misfit, bound
from .results import Unfit, clean, to_json

SOURCE_NAME = "<tool>"
FRAMES_MAX = 20
LINE_CHARS = 200
ERROR_CHARS = 4_000
NAMES_SHOWN = 10
PARTS_SHOWN = 5
PART_CHARS = 600
GROUP_DEPTH = 3
BALLAST_BYTES = 4 << 20


def execute(job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a job: `status`, and `value`, `error`, `frames`, `agent` where there are such."""
    ballast = mmap.mmap(
        -1, BALLAST_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # address space to give up when it has run out, so that this can be told
    source: str = job["source"]
    agent = AgentState(job["agent"]) if job["agent"] is not None else None
    try:
        try:
            code = _compiled(source, whole=job["function"] is not None)
        except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
            return _refusal(_why_not_parsed(error))
        value = _outcome(code, job, agent)
        answer = {"status": "success", "value": to_json(value, bytes_max=job["result_bytes"])}
        if agent is not None and (changed := agent.memory.changed()):
            answer["agent"] = {label: clean(text) for label, text in changed.items()}
        return answer
    except Misfit as error:
        return _refusal(str(error))
    except Unfit as error:
        return {"status": "error", "error": str(error)}
    except MemoryError as error:
        ballast.close()
        limit = f"{job['limits']['memory_mb']:,} MiB"
        return {"status": "memory", "error": f"it needs more memory than {limit}", "frames": _frames(error, source)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: it is the tool that ended, not this process
        return {"status": "error", "error": _told(error), "frames": _frames(error, source)}


def printing_to(fd: int, bytes_max: int) -> io.TextIOWrapper:
    """A text file on a descriptor that takes everything and passes on the first `bytes_max` bytes."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Capped(fd, bytes_max)), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


class _Capped(io.RawIOBase):
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


def _compiled(source: str, *, whole: bool) -> tuple[types.CodeType, types.CodeType | None]:
    """The code, and that of the last expression apart, where its value is wanted."""
    if whole:
        # Annotations stay texts: clients send functions without the imports that their annotations need.
        flags = __future__.annotations.compiler_flag
        return compile(source, SOURCE_NAME, "exec", flags=flags, dont_inherit=True), None
    tree = ast.parse(source, SOURCE_NAME)
    last = None
    if tree.body and isinstance(end := tree.body[-1], ast.Expr):
        last = compile(ast.Expression(end.value), SOURCE_NAME, "eval", dont_inherit=True)
        tree.body.pop()
    return compile(tree, SOURCE_NAME, "exec", dont_inherit=True), last


def _outcome(code: tuple[types.CodeType, types.CodeType | None], job: Mapping[str, Any], agent: object) -> object:
    body, last = code
    name = job["function"]
    module = types.ModuleType("__main__" if name is None else "tool")
    sys.modules[module.__name__] = module  # dataclasses and pickle look their classes' modules up
    exec(body, module.__dict__)
    if name is None:
        return None if last is None else _shown(_awaited(eval(last, module.__dict__)), job["result_bytes"])
    function = module.__dict__.get(name)
    if not callable(function):
        raise Misfit(_no_function(name, module.__dict__))
    return _awaited(function(**bound(function, job["arguments"], agent)))


def _awaited(value: object) -> object:
    if not inspect.iscoroutine(value):
        return value
    import asyncio

    return asyncio.run(value)


def _shown(value: object, bytes_max: int) -> object:
    """A script's last value: itself where JSON can hold it, else as an interpreter would show it."""
    try:
        return to_json(value, bytes_max=bytes_max)
    except Unfit:
        return repr(value)


def _no_function(name: str, names: Mapping[str, object]) -> str:
    functions = [other for other, value in names.items() if inspect.isfunction(value)]
    has = f"it has {', '.join(functions[:NAMES_SHOWN])}" if functions else "it has none at its top level"
    return f"the source has no function {name!r}: {has}"


def _refusal(why: str) -> dict[str, Any]:
    return {"status": "refused", "error": clean(why)[:ERROR_CHARS]}


def _why_not_parsed(error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        text = f": `{error.text.strip()[:LINE_CHARS]}`" if error.text else ""
        return f"the source does not parse: line {error.lineno}: {error.msg}{text}"
    if isinstance(error, RecursionError | OverflowError):
        return "the source does not parse: it is nested too deeply"
    return f"the source does not parse: {error.msg if isinstance(error, SyntaxError) else error}"


def _told(error: BaseException, depth: int = 0) -> str:
    """The kind of the error and its message, whatever the message does; of a group also what is in it."""
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
    text = f"{kind}: {message}" if message else kind
    if not isinstance(error, BaseExceptionGroup) or depth == GROUP_DEPTH:
        return text
    parts = [_told(one, depth + 1)[:PART_CHARS] for one in error.exceptions[:PARTS_SHOWN]]
    more = len(error.exceptions) - len(parts)
    return f"{text[:PART_CHARS]}: [{'; '.join(parts)}{f'; and {more} more' if more else ''}]"


def _frames(error: BaseException, source: str) -> list[tuple[int, str, str]]:
    """(line, function, text) of the lines of the source that the error came through, outermost first."""
    lines = source.splitlines()
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        code, line = traceback.tb_frame.f_code, traceback.tb_lineno
        if code.co_filename == SOURCE_NAME:
            text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
            found.append((line, clean(code.co_name)[:LINE_CHARS], clean(text)[:LINE_CHARS]))
        traceback = traceback.tb_next
    return found if len(found) <= FRAMES_MAX else found[: FRAMES_MAX // 2] + found[-FRAMES_MAX // 2 :]
