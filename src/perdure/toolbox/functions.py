"""Python functions of the program itself as tools. They run in this process: they are the program's own code."""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints, overload

from perdure.core.errors import InvalidArguments, InvalidInput, NotFound
from perdure.core.ports import CallContext
from perdure.core.tools.schema import schema_of
from perdure.core.tools.spec import Tool, ToolOutcome, ToolSpec

F = TypeVar("F", bound=Callable[..., Any])

PARTS_SHOWN = 5
PART_CHARS = 600
GROUP_DEPTH = 3

_MARK = "__perdure_tool__"


@dataclass(frozen=True, slots=True)
class _Options:
    name: str | None = None
    idempotent: bool = False
    parallel: bool = False
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function and what a model is told of it."""

    function: Callable[..., Any]
    spec: ToolSpec

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionTool:
        """The tool of a function, marked by `tool` or not. Raises: InvalidInput: no schema can be made of it."""
        options: _Options = getattr(function, _MARK, _Options())
        description, parameters = schema_of(function)
        name = options.name or function.__name__
        if not name.isidentifier() or len(name) > 48:
            raise InvalidInput(f"tool name {name[:80]!r} can't be used: up to 48 letters, digits and _, no spaces")
        spec = ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            idempotent=options.idempotent,
            parallel=options.parallel,
            timeout_s=options.timeout_s,
        )
        return cls(function, spec)


@overload
def tool(function: F) -> F: ...
@overload
def tool(
    *, name: str | None = None, idempotent: bool = False, parallel: bool = False, timeout_s: float | None = None
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    *,
    name: str | None = None,
    idempotent: bool = False,
    parallel: bool = False,
    timeout_s: float | None = None,
) -> F | Callable[[F], F]:
    """Mark a Python function as a tool: its schema comes from its signature and docstring, it runs in this process.

    Args:
        name: what the model calls it; the function's name if left out.
        idempotent: it does no harm to run it twice, so a call that a crash interrupted is run again.
        parallel: several calls of one answer may run at the same time.
        timeout_s: seconds after which the call is given up; an `async` function is stopped, another one runs to its end
            unheard.
    """
    options = _Options(name, idempotent, parallel, timeout_s)

    def mark(function: F) -> F:
        setattr(function, _MARK, options)
        return function

    return mark if function is None else mark(function)


class Functions:
    """`Toolbox` over Python functions."""

    def __init__(self, functions: Iterable[Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, FunctionTool] = {}
        for function in functions:
            self.add(function)

    def add(self, function: Callable[..., Any]) -> ToolSpec:
        """Take a function in, replacing one of the same name. Raises: InvalidInput."""
        made = FunctionTool.of(function)
        self._tools[made.spec.name] = made
        return made.spec

    def specs(self) -> Sequence[ToolSpec]:
        return [made.spec for made in self._tools.values()]

    def missing(self, tool: Tool) -> str | None:
        name = tool.spec.name
        return None if name in self._tools else f"tool {name!r} is not loaded in this process, so it was not run"

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        made = self._tools.get(tool.spec.name)
        if made is None:
            raise NotFound("tool", tool.spec.name)
        values = _coerced(made, arguments)
        if inspect.iscoroutinefunction(made.function):
            return await _awaited(made.function, values)
        return await asyncio.to_thread(_called, made.function, values)


def _called(function: Callable[..., Any], values: Mapping[str, Any]) -> ToolOutcome:
    """What came of a plain function, in the thread where it runs.

    Nothing is raised out of that thread: SystemExit would end the event loop, StopIteration is lost on the way to it.
    """
    try:
        return _outcome(function(**values))
    except BaseException as error:
        return _failure(error)


async def _awaited(function: Callable[..., Any], values: Mapping[str, Any]) -> ToolOutcome:
    try:
        return _outcome(await function(**values))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # somebody wants this call stopped; else it is the tool's own doing
            raise
        return _failure(error)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return _failure(error)


def _failure(error: BaseException) -> ToolOutcome:
    """The model needs what went wrong, the person who wrote the tool where: the frames below this file's."""
    frames = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
    return ToolOutcome(text=_told(error), status="error", stderr=("".join(frames),))


def _told(error: BaseException, depth: int = 0) -> str:
    """The kind of the error and its message; of a group also what is in it."""
    text = f"{type(error).__name__}: {_said(error)}"
    if not isinstance(error, BaseExceptionGroup) or depth == GROUP_DEPTH:
        return text
    parts = [_told(one, depth + 1)[:PART_CHARS] for one in error.exceptions[:PARTS_SHOWN]]
    more = len(error.exceptions) - len(parts)
    return f"{text[:PART_CHARS]}: [{'; '.join(parts)}{f'; and {more} more' if more else ''}]"


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its own message fails
        return "it has no message that can be shown"


def _coerced(made: FunctionTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the function's annotations want them: models, dates, numbers written as text."""
    import pydantic

    hints = get_type_hints(made.function, include_extras=True)
    values: dict[str, Any] = {}
    for key, value in arguments.items():
        try:
            values[key] = pydantic.TypeAdapter(hints[key]).validate_python(value) if key in hints else value
        except pydantic.ValidationError as error:
            problem = "; ".join(f"{key}: {entry['msg']}" for entry in error.errors())
            raise InvalidArguments(made.spec.name, problem) from error
    return values


def _outcome(result: Any) -> ToolOutcome:
    """What a function returned, as text: a string as it is, anything else as JSON, or as it shows itself."""
    if isinstance(result, str):
        return ToolOutcome(text=result)
    problem = _unshowable(result)
    if problem is None:
        try:
            return ToolOutcome(text=json.dumps(result, ensure_ascii=False, allow_nan=False))
        except (ValueError, RecursionError) as error:
            problem = f"a value that JSON does not have ({'nested too deep' if not str(error) else error})"
        except TypeError:
            try:
                return ToolOutcome(text=str(result))
            except Exception as error:
                problem = f"a {type(result).__name__} that can't be shown ({type(error).__name__})"
    return ToolOutcome(
        text=f"the tool ran, but returned {problem}: it has to return text or JSON values", status="error"
    )


def _unshowable(result: Any) -> str | None:
    if isinstance(result, bytes | bytearray | memoryview):
        return f"{len(result):,} bytes"
    if inspect.isgenerator(result) or inspect.isasyncgen(result) or inspect.iscoroutine(result):
        return f"a {type(result).__name__.replace('_', ' ')}, which nobody runs"
    return None
