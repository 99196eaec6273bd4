"""Python functions of your program as tools, which run in its process; and one toolbox made of several."""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints, overload

from perdure.core.errors import InvalidArguments, InvalidInput, NotFound
from perdure.core.ports import CallContext, Toolbox
from perdure.core.specs import Tool, ToolOutcome, ToolSpec
from perdure.core.tools.schema import schema_of
from perdure.core.tools.threads import run_in_own_thread
from perdure.toolbox.sandbox.inside.results import describe_error


class Toolboxes:
    """`Toolbox` that hands a call to the toolbox of the tool's kind."""

    def __init__(self, **by_kind: Toolbox) -> None:
        self._by_kind = by_kind

    def add(self, **by_kind: Toolbox) -> None:
        """Add toolboxes: kind of tools -> toolbox that runs them."""
        self._by_kind |= by_kind

    def missing(self, tool: Tool) -> str | None:
        """Why this tool can't be run here; None: it can."""
        toolbox = self._by_kind.get(tool.spec.kind)
        if toolbox is None:
            return f"tool {tool.spec.name!r} can't be run here: this process runs no tools of the kind {tool.spec.kind}"
        return toolbox.missing(tool)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """The outcome of the toolbox of the tool's kind. Raises: NotFound: there is none."""
        toolbox = self._by_kind.get(tool.spec.kind)
        if toolbox is None:
            raise NotFound("toolbox", tool.spec.kind)
        return await toolbox.call(tool, arguments, context)


F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__perdure_tool__"


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
        idempotent: it can safely run twice, so a call that a crash interrupted is run again.
        parallel: several calls of one answer may run at the same time.
        timeout_s: seconds after which the call fails; an `async` function is stopped, another one runs to its end, and
            its result is ignored.
    """
    options = {"name": name, "idempotent": idempotent, "parallel": parallel, "timeout_s": timeout_s}

    def mark(function: F) -> F:
        """Store the options on the function."""
        setattr(function, _MARK, options)
        return function

    return mark if function is None else mark(function)


class Functions:
    """`Toolbox` over Python functions."""

    def __init__(self, functions: Iterable[Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, tuple[Callable[..., Any], ToolSpec]] = {}
        for function in functions:
            self.add(function)

    def add(self, function: Callable[..., Any]) -> ToolSpec:
        """Add a function, marked by `tool` or not, in place of one of the same name. Raises: InvalidInput: its
        signature gives no schema, or its name can't be used."""
        options = dict(getattr(function, _MARK, {}))
        name = options.pop("name", None) or function.__name__
        description, parameters = schema_of(function)
        if not name.isidentifier() or len(name) > 48:
            raise InvalidInput(f"tool name {name[:80]!r} can't be used: up to 48 letters, digits and _, no spaces")
        spec = ToolSpec(name=name, description=description, parameters=parameters, **options)
        self._tools[spec.name] = function, spec
        return spec

    def specs(self) -> Sequence[ToolSpec]:
        """The tools that the functions are, in the order in which they were added."""
        return [spec for _, spec in self._tools.values()]

    def missing(self, tool: Tool) -> str | None:
        """Why this tool can't run here; None: it can."""
        name = tool.spec.name
        return None if name in self._tools else f"tool {name!r} is not loaded in this process, so it was not run"

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """The outcome of the function with these arguments. Raises: NotFound, InvalidArguments."""
        name = tool.spec.name
        if name not in self._tools:
            raise NotFound("tool", name)
        function, _ = self._tools[name]
        values = _convert_arguments(function, name, arguments)
        if inspect.iscoroutinefunction(function):
            return await _run_async(name, function, values)
        return await run_in_own_thread(_run, name, function, values)


def _run(name: str, function: Callable[..., Any], values: Mapping[str, Any]) -> ToolOutcome:
    """The outcome of a plain function, in the thread where it runs.

    Nothing is raised out of that thread: SystemExit would end the event loop, StopIteration would be lost.
    """
    try:
        return _render_result(function(**values))
    except BaseException as error:
        return _failure(name, error)


async def _run_async(name: str, function: Callable[..., Any], values: Mapping[str, Any]) -> ToolOutcome:
    """The outcome of an `async` function, in the event loop; what it raises does not end the loop."""
    try:
        return _render_result(await function(**values))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # the call was cancelled; else the tool raised it
            raise
        return _failure(name, error)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return _failure(name, error)


def _failure(name: str, error: BaseException) -> ToolOutcome:
    """The outcome of a tool whose function raised, with the traceback, but this file's frames, for its author."""
    frames = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
    return ToolOutcome.failure(name, describe_error(error, _describe_one), stderr=("".join(frames),))


def _describe_one(error: BaseException) -> str:
    """The kind of an error and its message."""
    try:
        message = str(error)
    except Exception:  # making the message fails
        message = "it has no message that can be shown"
    return f"{type(error).__name__}: {message}"


def _convert_arguments(function: Callable[..., Any], name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments converted to the types of the function's annotations. Raises: InvalidArguments."""
    import pydantic

    hints = get_type_hints(function, include_extras=True)
    values: dict[str, Any] = {}
    for key, value in arguments.items():
        try:
            values[key] = pydantic.TypeAdapter(hints[key]).validate_python(value) if key in hints else value
        except pydantic.ValidationError as error:
            problem = "; ".join(f"{key}: {entry['msg']}" for entry in error.errors())
            raise InvalidArguments(name, problem) from error
    return values


def _render_result(result: Any) -> ToolOutcome:
    """The return value of a function as text: a string unchanged, anything else as JSON or by `str`."""
    if isinstance(result, str):
        return ToolOutcome(text=result)
    problem = _describe_unusable(result)
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


def _describe_unusable(result: Any) -> str | None:
    """What a result is that has no useful text, such as "12 bytes"; None: it may have one."""
    if isinstance(result, bytes | bytearray | memoryview):
        return f"{len(result):,} bytes"
    if inspect.isgenerator(result) or inspect.isasyncgen(result) or inspect.iscoroutine(result):
        return f"a {type(result).__name__.replace('_', ' ')}, which nobody runs"
    return None
