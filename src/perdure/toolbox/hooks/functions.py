"""Python functions as hooks: those of the program, and the entry points `perdure.hooks` of installed packages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any, TypeVar

from perdure.core.errors import InvalidInput
from perdure.core.hooks import GO_ON, HOOK_POINTS, FailurePolicy, HookInfo, HookPayload, HookPoint, Verdict
from perdure.core.tools.threads import run_in_own_thread

ENTRY_POINT_GROUP = "perdure.hooks"

Function = Callable[[Any], Verdict | None] | Callable[[Any], Awaitable[Verdict | None]]
F = TypeVar("F", bound=Function)

_MARK = "__perdure_hook__"


def hook(
    *points: HookPoint,
    name: str | None = None,
    tools: Sequence[str] = (),
    timeout_s: float = 10.0,
    if_it_fails: FailurePolicy = "go_on",
) -> Callable[[F], F]:
    """Mark a function as a hook: it is called at `points` with a payload, and may return a `Verdict`.

    Args:
        name: its name in events and logs; the function's name if left out.
        tools: patterns of tool names, such as `mcp_*`: at the points of tools it is called for these only.
        timeout_s: seconds after which it has failed; an `async` function is stopped, another one runs to its end, and
            its verdict is ignored.
        if_it_fails: what happens if it raises or takes too long: `go_on`, or `block`.
    Raises: InvalidInput: no point, an unknown point, or another value that is not allowed.
    """
    info = HookInfo(
        name=name or "", points=frozenset(points), tools=tuple(tools), timeout_s=timeout_s, if_it_fails=if_it_fails
    )
    check_hook(info)

    def mark(function: F) -> F:
        setattr(function, _MARK, info if name else replace(info, name=getattr(function, "__name__", "hook")))
        return function

    return mark


def check_hook(info: HookInfo) -> None:
    """Check the values of a hook. Raises: InvalidInput: no point, an unknown point, a value that is not allowed."""
    if not info.points or (unknown := sorted(info.points - {*HOOK_POINTS})):
        wrong = f"{unknown[0]!r} is no point" if info.points else "a hook needs a point to be called at"
        raise InvalidInput(f"{wrong}: there are {', '.join(HOOK_POINTS)}")
    if info.if_it_fails not in ("go_on", "block"):
        raise InvalidInput(f"if_it_fails of a hook is {info.if_it_fails!r}: 'go_on' or 'block' is needed")
    if not 0 < info.timeout_s <= 600:
        raise InvalidInput(f"timeout_s of a hook is {info.timeout_s!r}: more than 0 and at most 600 seconds are needed")


class FunctionHook:
    """`Hook` that calls a function."""

    def __init__(self, function: Function, info: HookInfo) -> None:
        self._function, self.info = function, info

    async def __call__(self, payload: HookPayload) -> Verdict:
        if inspect.iscoroutinefunction(self._function):
            verdict: Any = await self._function(payload)
        else:
            verdict = await run_in_own_thread(self._function, payload)
        if verdict is None:
            return GO_ON
        if not isinstance(verdict, Verdict):
            raise TypeError(f"a hook returns a Verdict or None, not {type(verdict).__name__}")
        return verdict


def function_hooks(functions: Iterable[Function], *, source: str = "program") -> list[FunctionHook]:
    """The hooks of functions that `hook` has marked. Raises: InvalidInput: a function without the mark."""
    hooks = []
    for function in functions:
        info: HookInfo | None = getattr(function, _MARK, None)
        if info is None:
            label = getattr(function, "__name__", repr(function))
            raise InvalidInput(f"{label} is no hook: mark it with @hook('before_tool'), or the points it is for")
        hooks.append(FunctionHook(function, replace(info, source=source)))
    return hooks


@functools.cache
def entry_point_hooks() -> tuple[FunctionHook, ...]:
    """The hooks of installed packages, loaded once. Each entry point is a marked function, or a list of them.

    Raises: InvalidInput: one can't be loaded. It is not skipped, since it may be there to forbid something.
    """
    hooks: list[FunctionHook] = []
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        package = point.dist.name if point.dist is not None else point.value
        try:
            functions = point.load()
        except Exception as error:
            raise InvalidInput(f"hook {point.name!r} of {package} can't be loaded: {error}") from error
        functions = functions if isinstance(functions, list | tuple) else [functions]
        hooks += function_hooks(functions, source=f"package {package}")
    return tuple(hooks)
