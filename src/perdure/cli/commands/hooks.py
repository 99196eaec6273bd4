"""`perdure hook list`, and the hooks' line of `perdure doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.app import configured_hooks
from perdure.cli.commands.checks import Check
from perdure.cli.views.fold import visible
from perdure.cli.views.json import fields
from perdure.cli.views.view import View
from perdure.core.errors import PerdureError
from perdure.core.hooks import HOOK_POINTS, Hook, HookInfo
from perdure.settings import Settings

NO_HOOK = "There are no hooks. A file hooks.toml in the data folder names commands; docs/hooks.md shows how."


async def list_hooks(view: View) -> None:
    """Print the configured hooks in the order of their calls."""
    hooks = configured_hooks(Settings.from_environment())
    view.show([_shape(hook) for hook in hooks], *(line for hook in hooks for line in _lines(hook)))
    if not hooks:
        view.hint(NO_HOOK)


def _lines(hook: Hook) -> Iterator[str]:
    """A hook for people."""
    info = hook.info
    tools = f" of {', '.join(info.tools)}" if info.tools else ""
    fails = "blocks" if info.if_it_fails == "block" else "is passed over"
    yield f"{visible(info.name)}  {', '.join(_points(info))}{visible(tools)}"
    yield f"    from {visible(info.source)}; up to {info.timeout_s:g} s, and {fails} if it fails"
    if problem := _problem(hook):
        yield f"    {visible(problem)}: it fails each time"


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
    """The points at which a hook is called, in the order of a run."""
    return [point for point in HOOK_POINTS if point in info.points]


def _shape(hook: Hook) -> dict[str, object]:
    """A hook for programs."""
    shape = fields(hook.info, "name", "tools", "source", "timeout_s", "if_it_fails")
    return shape | {"on": _points(hook.info), "problem": _problem(hook) or None}
