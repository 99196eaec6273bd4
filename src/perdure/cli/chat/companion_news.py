"""What a companion changed since last time, in one or two quiet lines of the chat."""

from __future__ import annotations

from datetime import datetime

from perdure.cli.views.fold import fold, visible
from perdure.cli.views.view import View
from perdure.core.groups.group import COMPANION
from perdure.library.agent import AsyncAgent
from perdure.library.services.groups.companions import PassInfo

PASSES_MAX = 5
TEXT_CHARS, DIFF_CHARS = 120, 160


class CompanionNews:
    """Shows each pass of a companion once. An agent without a companion costs no look into the store."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._since: datetime | None = None

    async def show_since_last_run(self, agent: AsyncAgent) -> None:
        """Show what was changed after the agent's last run began. Raises: PerdureError."""
        if agent.info.settings.get(COMPANION) and (runs := await agent.runs(limit=1)):
            self._since = runs[0].created_at
            await self.show(agent)

    async def show(self, agent: AsyncAgent) -> None:
        """Show what was changed since the last look. Raises: PerdureError."""
        if not agent.info.settings.get(COMPANION):
            return
        passes = await agent.companion.passes(limit=PASSES_MAX)
        known = self._since
        ended = [one for one in passes if one.ended_at is not None and (known is None or one.ended_at > known)]
        for one in ended[::-1]:
            if one.ended_at is not None:
                self._since = one.ended_at
            for line in news_lines(one):
                self._view.hint(line)


def news_lines(one: PassInfo) -> list[str]:
    """A pass in at most two lines: which blocks it changed and why, and the difference; none if it changed nothing."""
    if not one.edits:
        return []
    labels = ", ".join(dict.fromkeys(visible(edit.label) for edit in one.edits))
    changed = [
        line
        for edit in one.edits
        for line in edit.diff.splitlines()
        if line[:1] in ("+", "-") and line[1:].strip() and not line.startswith(("+++", "---"))
    ]
    reason = f": {visible(one.reason)}" if one.reason else ""
    return [
        fold(f"meanwhile your companion changed {labels}{reason}", TEXT_CHARS),
        *([fold("  " + "  ".join(map(visible, changed)), DIFF_CHARS)] if changed else []),
    ]
