"""The hooks of this machine: what is set, where it comes from, and when it is called."""

from __future__ import annotations

from perdure.app import configured_hooks
from perdure.cli.checks import Check
from perdure.cli.fold import visible
from perdure.cli.opened import Shown
from perdure.core.errors import PerdureError
from perdure.core.hooks import HOOK_POINTS, HookInfo
from perdure.settings import Settings

__all__ = ["hooks_check", "list_hooks"]

NOTHING_YET = "There are no hooks. A file hooks.toml in the data folder names commands; docs/hooks.md shows how."


def list_hooks(*, as_json: bool) -> int:
    """Print the hooks in the order in which they are called; those of a program are known to it alone."""
    shown = Shown(as_json=as_json)
    try:
        found = [hook.info for hook in configured_hooks(Settings.from_environment())]
    except PerdureError as error:
        shown.view.error(error)
        return 1
    if as_json:
        shown.json([_shape(info) for info in found])
        return 0
    if not found:
        shown.view.hint(NOTHING_YET)
    for info in found:
        tools = f" of {', '.join(info.tools)}" if info.tools else ""
        fails = "blocks" if info.if_it_fails == "block" else "is passed over"
        shown.print(f"{visible(info.name)}  {', '.join(_points(info))}{visible(tools)}")
        shown.print(f"    from {visible(info.source)}; up to {info.timeout_s:g} s, and {fails} if it fails")
    return 0


def hooks_check(settings: Settings) -> Check:
    """The line of `perdure doctor`."""
    try:
        found = [hook.info for hook in configured_hooks(settings)]
    except PerdureError as error:
        return Check("hooks", "broken", str(error), "correct it; PERDURE_HOOKS=none calls no hook at all")
    if not found:
        return Check("hooks", "ok", "none")
    sources = dict.fromkeys(info.source for info in found)
    return Check("hooks", "ok", f"{len(found)} from {', '.join(sources)}: {', '.join(info.name for info in found)}")


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
