"""The bus of all hooks: they are called here, one after the other, each within its time limit.

The answer of a hook is stored with an event. A text that it adds stands on the run's row until the next request is
made, and becomes a row of the log there. So a request stays a function of the log, and no row comes between a call and
its result. A hook may be called again after a crash, since its answer is stored only afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.sections.envelopes import envelope
from perdure.core.errors import HookBlocked
from perdure.core.events import HookAnswered
from perdure.core.hooks import Hook, HookPayload, HookPoint, Verdict

log = logging.getLogger(__name__)

CONTEXT_CHARS = 10_000
REASON_CHARS = 2_000

UNBLOCKABLE: frozenset[HookPoint] = frozenset({"after_compaction", "run_end", "conversation_end", "reset"})
"""The points at which nothing can be blocked any more."""


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """The answers of all hooks of a point.

    Args:
        blocked: the hook that blocks what was about to happen, and its reason.
        context: texts for the agent, each a row of its own in the log.
        events: one for each answer.
    """

    blocked: HookBlocked | None = None
    context: tuple[str, ...] = ()
    events: tuple[HookAnswered, ...] = ()


_NOTHING = HookOutcome()


class Hooks:
    """Calls the hooks of a point in order, until one blocks. `points`: those with a hook."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)
        self.points = frozenset(point for hook in self._hooks for point in hook.info.points)

    async def fire(self, payload: HookPayload) -> HookOutcome:
        """Call the hooks of the payload's point. Never raises for what a hook does."""
        if payload.point not in self.points:
            return _NOTHING
        context: list[str] = []
        events: list[HookAnswered] = []
        for hook in self._hooks:
            info = hook.info
            if not info.wants(payload):
                continue
            verdict, failed = await _call_hook(hook, payload)
            if failed is not None:
                log.warning("hook %r failed at %s: %s", info.name, payload.point, failed)
                events.append(HookAnswered(payload.point, info.name, "failed", failed))
            if verdict.context:
                text = verdict.context[:CONTEXT_CHARS]
                context.append(envelope("hook_context", hook=info.name, point=payload.point, text=text))
                events.append(HookAnswered(payload.point, info.name, "context", text[:REASON_CHARS]))
            if verdict.block is None:
                continue
            reason = verdict.block[:REASON_CHARS].strip() or "it gives no reason"
            if payload.point in UNBLOCKABLE:
                log.warning("hook %r can't block at %s: %s", info.name, payload.point, reason)
                events.append(HookAnswered(payload.point, info.name, "failed", f"nothing is blocked here: {reason}"))
                continue
            events.append(HookAnswered(payload.point, info.name, "blocked", reason))
            return HookOutcome(HookBlocked(info.name, payload.point, reason), tuple(context), tuple(events))
        return HookOutcome(None, tuple(context), tuple(events)) if context or events else _NOTHING


async def _call_hook(hook: Hook, payload: HookPayload) -> tuple[Verdict, str | None]:
    """Return a hook's verdict, and why it failed, if it did: then `if_it_fails` decides whether the verdict blocks."""
    info = hook.info
    try:
        async with asyncio.timeout(info.timeout_s):
            return await hook(payload), None
    except TimeoutError:
        failed = f"it took more than {info.timeout_s:g} s"
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        failed = "it gave its own task up"
    except Exception as error:  # a hook is foreign code: it may raise anything
        failed = f"{type(error).__name__}: {error}"[:REASON_CHARS]
    block = f"it could not look at this: {failed}" if info.if_it_fails == "block" else None
    return Verdict(block=block), failed
