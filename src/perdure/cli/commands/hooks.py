"""The hooks of this machine: what is set, where it comes from, and when it is called."""

from __future__ import annotations

from perdure.app import configured_hooks
from perdure.cli.commands.checks import Check
from perdure.cli.open_store import Shown
from perdure.cli.views.fold import visible
from perdure.core.errors import PerdureError
from perdure.core.hooks import HOOK_POINTS, Hook, HookInfo
from perdure.settings import Settings

__all__ = ["hooks_check", "list_hooks"]

NOTHING_YET = "There are no hooks. A file hooks.toml in the data folder names commands; docs/hooks.md shows how."


def list_hooks(*, as_json: bool) -> int:
    """Print the hooks in the order in which they are called; those of a program are known to it alone."""
    shown = Shown(as_json=as_json)
    try:
        hooks = configured_hooks(Settings.from_environment())
    except PerdureError as error:
        shown.view.error(error)
        return 1
    if as_json:
        shown.json([_shape(hook.info) | {"problem": _problem(hook) or None} for hook in hooks])
        return 0
    if not hooks:
        shown.view.hint(NOTHING_YET)
    for hook in hooks:
        info = hook.info
        tools = f" of {', '.join(info.tools)}" if info.tools else ""
        fails = "blocks" if info.if_it_fails == "block" else "is passed over"
        shown.print(f"{visible(info.name)}  {', '.join(_points(info))}{visible(tools)}")
        shown.print(f"    from {visible(info.source)}; up to {info.timeout_s:g} s, and {fails} if it fails")
        if problem := _problem(hook):
            shown.print(f"    {visible(problem)}: it fails each time")
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
    found = [hook.info for hook in hooks]
    sources = dict.fromkeys(info.source for info in found)
    return Check("hooks", "ok", f"{len(found)} from {', '.join(sources)}: {', '.join(info.name for info in found)}")


def _problem(hook: Hook) -> str:
    """What a command says of itself; functions have nothing of the kind."""
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
