"""Run one job's source and build the answer that is sent back."""

from __future__ import annotations
import __future__

import ast
import dataclasses
import inspect
import io
import mmap
import os
import sys
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from enum import Enum
from pathlib import PurePath
from typing import Any

from .results import NotJson, clean, describe_error, to_json

SOURCE_NAME = "<tool>"
FRAMES_MAX = 20
LINE_CHARS = 200
ERROR_CHARS = 4_000
NAMES_MAX = 10
BALLAST_BYTES = 4 << 20
"""Address space that is given up when memory has run out, so that the error can still be reported."""

Code = tuple[types.CodeType, types.CodeType | None]
"""(code of a source, code of a script's last expression, which the first is without; None: it ends with none)."""


def execute(job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a job: `status`, and where it has them `value`, `error`, `frames`, changed blocks as `agent`."""
    ballast = mmap.mmap(-1, BALLAST_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    source: str = job["source"]
    agent = VisibleAgent(job["agent"]) if job["agent"] is not None else None
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
        """Return the descriptor, for code that writes to it directly."""
        return self._fd

    def write(self, data: Any) -> int:
        """Write as much as the limit allows, and pretend that all was written."""
        view = memoryview(data).cast("B")
        if self._left > 0:
            written = os.write(self._fd, view[: self._left])
            self._left -= written
            return written if self._left else len(view)
        return len(view)


def _compile(source: str, *, is_script: bool) -> Code:
    """The code of a source: a script, whose last expression is its value, or else a module with a function. Raises:
    SyntaxError, ValueError, RecursionError, OverflowError."""
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
    """What the job's function returns, or the value of a script. Raises: ArgumentsDoNotFit; what the code raises."""
    body, last = code
    name = job["function"]
    module = types.ModuleType("__main__" if name is None else "tool")
    sys.modules[module.__name__] = module  # dataclasses and pickle look their classes' modules up
    exec(body, module.__dict__)
    if name is None:
        return None if last is None else _to_json_or_repr(_await(eval(last, module.__dict__)), job["result_bytes"])
    function = module.__dict__.get(name)
    if not callable(function):
        functions = [other for other, found in module.__dict__.items() if inspect.isfunction(found)]
        has = f"it has {', '.join(functions[:NAMES_MAX])}" if functions else "it has none at its top level"
        raise ArgumentsDoNotFit(f"the source has no function {name!r}: {has}")
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


def _refusal(why: str) -> dict[str, Any]:
    """The answer to a job that was not run, for this reason."""
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
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == SOURCE_NAME:
            text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
            frames.append((line, clean(frame.f_code.co_name)[:LINE_CHARS], clean(text)[:LINE_CHARS]))
    return frames if len(frames) <= FRAMES_MAX else frames[: FRAMES_MAX // 2] + frames[-FRAMES_MAX // 2 :]


class BlockState:
    """One block: `label`, and `value`, which can be set."""

    def __init__(self, label: str, value: str) -> None:
        self._label = label
        self._value = value

    @property
    def label(self) -> str:
        return self._label

    @property
    def value(self) -> str:
        return self._value

    @value.setter
    def value(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"the value of block {self._label!r} must be text, not {type(value).__name__}")
        self._value = value

    def __repr__(self) -> str:
        return f"Block(label={self._label!r}, value={self._value!r})"


class SandboxMemory:
    """The agent's blocks by label."""

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self._before = dict(blocks)
        self._blocks = {label: BlockState(label, value) for label, value in blocks.items()}

    @property
    def blocks(self) -> list[BlockState]:
        return list(self._blocks.values())

    def get_block(self, label: str) -> BlockState:
        """The block with this label. Raises: KeyError: there is none; the text lists the labels that there are."""
        try:
            return self._blocks[label]
        except KeyError:
            raise KeyError(f"the agent has no block {label!r}: it has {', '.join(self._blocks) or 'none'}") from None

    def get_blocks(self) -> list[BlockState]:
        return self.blocks

    def list_block_labels(self) -> list[str]:
        return list(self._blocks)

    def update_block_value(self, label: str, value: str) -> None:
        """Set the value of a block. Raises: KeyError: there is no such block; TypeError: the value is not text."""
        self.get_block(label).value = value

    def changes(self) -> dict[str, str]:
        """Label -> new value, of the blocks that the tool changed."""
        return {label: block.value for label, block in self._blocks.items() if block.value != self._before[label]}

    def __iter__(self) -> Iterator[BlockState]:
        return iter(self.blocks)


class VisibleAgent:
    """The agent: `id`, `name`, `memory`, `blocks`, and the other facts that the job has about it."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.__dict__.update({key: value for key, value in facts.items() if key.isidentifier()})
        self.memory = SandboxMemory(facts.get("blocks") or {})

    @property
    def blocks(self) -> list[BlockState]:
        return self.memory.blocks


AGENT_STATE = "agent_state"


class ArgumentsDoNotFit(Exception):
    """The job has no such function, or its arguments don't fit the function; the text says what is wrong."""


def bind_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], agent: object) -> dict[str, Any]:
    """The keyword arguments to call the function with, `agent_state` among them if the function takes it.

    Raises: ArgumentsDoNotFit: one is missing, unknown, or can't be converted to the type of its annotation.
    """
    values = dict(arguments)
    signature = inspect.signature(function)
    if AGENT_STATE in signature.parameters:
        values[AGENT_STATE] = agent
    try:
        signature.bind(**values)
    except TypeError as error:
        name = getattr(function, "__name__", "it")
        raise ArgumentsDoNotFit(f"the arguments don't fit {name}{signature}: {error}") from None
    hints = _type_hints(function)
    for name in values.keys() & hints.keys() - {AGENT_STATE}:
        try:
            values[name] = _convert(hints[name], values[name])
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:1_000]
            type_name = str(getattr(hints[name], "__name__", hints[name]))[:100]
            raise ArgumentsDoNotFit(f"argument {name!r} can't be made {type_name}: {text}") from None
    return values


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Parameter -> the type that its annotation names. An annotation that is no type is left out.

    Names that the source does not import have their usual meaning.
    """
    names = {**_USUAL_TYPES, **getattr(function, "__globals__", {})}
    hints: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(holder, names)
        except Exception:
            continue
    return hints


_USUAL_TYPES: Mapping[str, Any] = {
    **{name: getattr(typing, name) for name in typing.__all__},
    **{kind.__name__: kind for kind in (datetime, date, time, PurePath)},
}


def _convert(target: Any, value: Any) -> Any:
    """The value as an instance of a type; as it is, if the type says nothing about it."""
    origin = typing.get_origin(target)
    if origin is typing.Annotated:
        return _convert(typing.get_args(target)[0], value)
    if origin in {typing.Union, types.UnionType}:
        return _convert_to_one_of(typing.get_args(target), value)
    if origin is not None:
        return _convert_container(origin, typing.get_args(target), value)
    if isinstance(target, type):
        return _convert_to_class(target, value)
    return value


def _convert_to_one_of(choices: tuple[Any, ...], value: Any) -> Any:
    """Return the value as the first choice that it is an instance of, else as the first that it converts to."""
    if value is None and type(None) in choices:
        return None
    if type(value) in choices:
        return value
    problem: Exception | None = None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _convert(choice, value)
        except Exception as error:
            problem = error
    if problem is not None:
        raise problem
    return value


def _convert_container(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    """A list or dict as a container such as `set[int]`: class `origin`, item types `inner`; others as they are."""
    if isinstance(origin, type) and isinstance(value, list) and inner:
        if issubclass(origin, tuple) and inner[-1:] != (...,):
            return tuple(_convert(kind, item) for kind, item in zip(inner, value, strict=True))
        items = [_convert(inner[0], item) for item in value]
        for kind in (tuple, set, frozenset):
            if issubclass(origin, kind):
                return kind(items)
        return items
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict) and len(inner) == 2:
        return {key: _convert(inner[1], item) for key, item in value.items()}
    return value


def _convert_to_class(target: type, value: Any) -> Any:
    """Return the value converted to a class, if there is a usual way from JSON; else unchanged."""
    if isinstance(value, target):
        return value
    if issubclass(target, Enum):
        return target(value)
    if isinstance(value, str) and target in {datetime, date, time}:
        return target.fromisoformat(value)
    if isinstance(value, str) and issubclass(target, PurePath):
        return target(value)
    if isinstance(value, list) and target in {set, frozenset, tuple}:
        return target(value)
    if target is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        if callable(validate := getattr(target, "model_validate", None)):
            return validate(value)
        if dataclasses.is_dataclass(target):
            hints = typing.get_type_hints(target)
            return target(**{key: _convert(hints.get(key, Any), item) for key, item in value.items()})
    return value
