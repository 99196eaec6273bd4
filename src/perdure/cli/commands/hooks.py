"""`perdure hooks`, and the hooks' line of `perdure doctor`."""

from __future__ import annotations

from perdure.app import configured_hooks
from perdure.cli.commands.checks import Check
from perdure.cli.open_store import Output
from perdure.cli.views.fold import visible
from perdure.core.errors import PerdureError
from perdure.core.hooks import HOOK_POINTS, Hook, HookInfo
from perdure.settings import Settings

NO_HOOK = "There are no hooks. A file hooks.toml in the data folder names commands; docs/hooks.md shows how."


def list_hooks(*, as_json: bool) -> int:
    """Print the configured hooks in the order of their calls, and return the exit code."""
    output = Output(as_json=as_json)
    try:
        hooks = configured_hooks(Settings.from_environment())
    except PerdureError as error:
        output.view.error(error)
        return 1
    if as_json:
        output.json([_shape(hook.info) | {"problem": _problem(hook) or None} for hook in hooks])
        return 0
    if not hooks:
        output.view.hint(NO_HOOK)
    for hook in hooks:
        info = hook.info
        tools = f" of {', '.join(info.tools)}" if info.tools else ""
        fails = "blocks" if info.if_it_fails == "block" else "is passed over"
        output.print(f"{visible(info.name)}  {', '.join(_points(info))}{visible(tools)}")
        output.print(f"    from {visible(info.source)}; up to {info.timeout_s:g} s, and {fails} if it fails")
        if problem := _problem(hook):
            output.print(f"    {visible(problem)}: it fails each time")
    return 0


def hooks_check(settings: Settings) -> Check:
    """The line of `perdure doctor`."""
    try:
        hooks = configured_hooks(settings)
    except PerdureError as error:
        return Check("hooks", "broken", str(error), "correct it; PERDURE_HOOKS=none calls no hook at all")
    if not hooks:
        return Check("hooks", "ok", "none")
    for hook in hooks:
        if problem := _problem(hook):
            return Check("hooks", "broken", f"hook {hook.info.name!r}: {problem}", "correct its command")
    sources = ", ".join(dict.fromkeys(hook.info.source for hook in hooks))
    return Check("hooks", "ok", f"{len(hooks)} from {sources}: {', '.join(hook.info.name for hook in hooks)}")


def _problem(hook: Hook) -> str:
    """Why a command hook can't run; empty for functions."""
    return str(getattr(hook, "problem", ""))


def _points(info: HookInfo) -> list[str]:
    return [point for point in HOOK_POINTS if point in info.points]


def _shape(info: HookInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "on": _points(info),
        "tools": list(info.tools),
        "source": info.source,
        "timeout_s": info.timeout_s,
        "if_it_fails": info.if_it_fails,
    }
