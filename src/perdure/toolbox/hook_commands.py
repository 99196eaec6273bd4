"""Commands as hooks: `hooks.toml` in the data folder lists them. They get JSON, and answer with JSON or their exit
code. Python functions as hooks are those of the program, and the entry points `perdure.hooks` of installed packages."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import shlex
import shutil
import stat
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from perdure.core.errors import InvalidInput
from perdure.core.hooks import (
    GO_ON,
    HOOK_POINTS,
    FailurePolicy,
    HookInfo,
    HookPayload,
    HookPoint,
    Verdict,
    payload_to_json,
)
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.tools.threads import run_in_own_thread
from perdure.toolbox.processes import end_group, start_group

HOOKS_FILE = "hooks.toml"

OUTPUT_BYTES = 100_000
BLOCK_EXIT_CODE = 2
"""The exit code that blocks; stderr holds the reason."""

PASSED_VARIABLES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""The environment variables that every command sees. Keys of providers are not among them."""

_FIELDS = frozenset({"name", "on", "command", "tools", "timeout_s", "if_it_fails", "environment"})


class CommandFailed(Exception):
    """A command ended without a verdict."""


class CommandHook:
    """`Hook` that runs a command, a text for the shell or a program with its arguments, in `folder` and in a process
    group of its own. `environment`: the names of variables that it sees besides `PASSED_VARIABLES`."""

    def __init__(
        self, command: str | tuple[str, ...], info: HookInfo, *, folder: Path, environment: tuple[str, ...] = ()
    ) -> None:
        self._command, self.info, self._folder, self._names = command, info, folder, (*PASSED_VARIABLES, *environment)

    @property
    def problem(self) -> str:
        """Why the command can't be started, as far as is known without running it; empty: it can."""
        try:
            words = shlex.split(self._command) if isinstance(self._command, str) else list(self._command)
        except ValueError:
            return ""
        # A shell understands more than this: only a plain path to a program is checked.
        if not words or (isinstance(self._command, str) and not words[0].startswith(("/", "./"))):
            return ""
        program = words[0]
        path = str(self._folder / program) if "/" in program else program
        if shutil.which(path, path=os.environ.get("PATH")):
            return ""
        return f"there is no program {program!r} that can be run"

    async def __call__(self, payload: HookPayload) -> Verdict:
        """Run the command with the payload as JSON in its input; return its verdict. Raises: CommandFailed, OSError."""
        environment = {name: os.environ[name] for name in self._names if name in os.environ}
        environment |= {"PERDURE_HOOK": self.info.name, "PERDURE_HOOK_POINT": payload.point}
        data = payload_to_json(payload).encode() + b"\n"
        return _parse_verdict(*await run_command(self._command, data, folder=self._folder, environment=environment))


async def run_command(
    command: str | tuple[str, ...], data: bytes, *, folder: Path, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run a command, a text for the shell or a program with its arguments, in a process group of its own, with `data`
    as its input; return its exit code and the first 100,000 bytes of its output and of its errors. Raises: OSError."""
    process = await start_group(
        *(("/bin/sh", "-c", command) if isinstance(command, str) else command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=environment,
    )
    try:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        _, out, err = await asyncio.gather(
            _write_input(process.stdin, data), _read_output(process.stdout), _read_output(process.stderr)
        )
        code = await process.wait()
    finally:
        await end_group(process)  # and what it has started
    return code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def command_hooks(file: Path) -> list[CommandHook]:
    """The hooks of a file, in its order; none, if there is no such file.

    Raises: InvalidInput: anybody may change the file, it is no TOML, or one of its hooks is not valid.
    """
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} can't be read: {error}") from error
    if mode & stat.S_IWOTH:
        raise InvalidInput(f"{file} may be changed by anybody on this machine, and it runs commands: chmod o-w it")
    try:
        shape = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{file} is not TOML: {error}") from error
    entries = shape.pop("hook", [])
    if shape or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInput(f"{file}: only [[hook]] tables are known there, not {', '.join(shape) or 'another hook'}")
    hooks = [_build_hook(entry, file, number) for number, entry in enumerate(entries, start=1)]
    numbers: dict[str, int] = {}
    for number, (entry, hook) in enumerate(zip(entries, hooks, strict=True), start=1):
        if entry.get("name") and (first := numbers.setdefault(hook.info.name, number)) != number:
            raise InvalidInput(
                f"{file}: hooks {first} and {number} are both called {hook.info.name!r}: give each a name of its own"
            )
    return hooks


def _build_hook(entry: Mapping[str, Any], file: Path, number: int) -> CommandHook:
    """The hook of a table of the file, the `number`-th from 1. Raises: InvalidInput."""
    label = f"hook {number} of {file}"
    if unknown := sorted(entry.keys() - _FIELDS):
        raise InvalidInput(f"{label}: {unknown[0]!r} is not known; known are {', '.join(sorted(_FIELDS))}")
    command = entry.get("command")
    if isinstance(command, list):
        command = tuple(_check_texts(command, f"{label}: command"))
    if not command or not isinstance(command, str | tuple):
        raise InvalidInput(f"{label}: command is a text for the shell, or a list of a program and its arguments")
    timeout_s = entry.get("timeout_s", 10)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise InvalidInput(f"{label}: timeout_s is a number of seconds")
    on = entry.get("on", [])
    info = HookInfo(
        name=str(entry.get("name") or (command.split()[0] if isinstance(command, str) else command[0])),
        points=frozenset(_check_texts([on] if isinstance(on, str) else on, f"{label}: on")),  # type: ignore[arg-type]  # checked below
        source=str(file),
        tools=tuple(_check_texts(entry.get("tools", []), f"{label}: tools")),
        timeout_s=timeout_s,
        if_it_fails=entry.get("if_it_fails", "go_on"),
    )
    try:
        check_hook(info)
    except InvalidInput as error:
        raise InvalidInput(f"{label}: {error}") from error
    environment = tuple(_check_texts(entry.get("environment", []), f"{label}: environment"))
    return CommandHook(command, info, folder=file.parent, environment=environment)


def _check_texts(value: Any, label: str) -> list[str]:
    """The value, checked to be a list of non-empty texts. Raises: InvalidInput, which calls it `label`."""
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise InvalidInput(f"{label} is a list of texts")
    return value


async def _write_input(stdin: asyncio.StreamWriter, data: bytes) -> None:
    """Write the data to a command's input, and close it."""
    closed = (BrokenPipeError, ConnectionResetError, RuntimeError)  # the last one is uvloop's
    with contextlib.suppress(*closed):  # the command need not read
        stdin.write(data)
        await stdin.drain()
    with contextlib.suppress(*closed):
        stdin.close()
        await stdin.wait_closed()


async def _read_output(stream: asyncio.StreamReader) -> bytes:
    """The first 100,000 bytes of an output. What follows is read and thrown away, so that the command need not wait."""
    output = bytearray()
    while piece := await stream.read(65_536):
        output += piece[: max(0, OUTPUT_BYTES - len(output))]
    return bytes(output)


def parse_answer(code: int, out: str, err: str) -> Mapping[str, Any]:
    """The object of JSON that a command answers with; empty: its output is no answer.

    Raises: CommandFailed: it failed, or its answer is no JSON.
    """
    if code != 0:
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise CommandFailed(f"it ended with {end}: {err.strip()[:500]}" if err.strip() else f"it ended with {end}")
    if not out.lstrip().startswith("{"):
        return {}
    try:
        # A byte that is no UTF-8 was replaced by three.
        answer: Mapping[str, Any] = parse_json(out, JsonLimits(size_bytes=3 * OUTPUT_BYTES))
    except ValueError as error:
        raise CommandFailed(f"its answer is not JSON: {error}") from error
    return answer


def _parse_verdict(code: int, out: str, err: str) -> Verdict:
    """The verdict of a command by its exit code and outputs. Raises: CommandFailed: it failed, or gives no answer."""
    if code == BLOCK_EXIT_CODE:
        return Verdict(block=err.strip() or "it gives no reason")
    answer = parse_answer(code, out, err)
    context, reason = answer.get("context"), answer.get("reason")
    if answer.get("decision") not in (None, "go_on", "block") or not all(
        text is None or isinstance(text, str) for text in (context, reason)
    ):
        raise CommandFailed('its answer is not {"decision": "go_on" or "block", "reason": text, "context": text}')
    blocked = answer.get("decision") == "block"
    return Verdict(block=(reason or "it gives no reason") if blocked else None, context=context or None)


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
        """Store the options on the function."""
        setattr(function, _MARK, info if name else replace(info, name=getattr(function, "__name__", "hook")))
        return function

    return mark


def check_hook(info: HookInfo) -> None:
    """Check the values of a hook. Raises: InvalidInput: no point, an unknown point, a value that is not allowed."""
    if not info.points or (unknown := sorted(info.points - {*HOOK_POINTS})):
        wrong = f"{unknown[0]!r} is not a point" if info.points else "a hook needs a point to be called at"
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
        """What the function returns; None goes on. Raises: TypeError: it returns something else; what it raises."""
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
            raise InvalidInput(f"{label} is not a hook: mark it with @hook('before_tool'), or the points it is for")
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
