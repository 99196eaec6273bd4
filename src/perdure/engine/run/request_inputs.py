"""What the units of work that make or plan a request need from outside the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from perdure.context.request.assemble import View
from perdure.context.window.budget import reserve_tokens
from perdure.core.agents import Agent
from perdure.core.events import MemoryRecalled
from perdure.core.models import Models
from perdure.core.ports import Ids, TokenCounter
from perdure.engine.ports import EngineSettings, window_tokens

__all__ = ["NO_RECALL", "AutoRecalled", "RequestInputs"]


@dataclass(frozen=True, slots=True)
class AutoRecalled:
    """What memory has on a run's newest message, and the event that tells of it, if there is anything to tell."""

    text: str
    event: MemoryRecalled | None


NO_RECALL = AutoRecalled("", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInputs:
    """Ports, settings and time, and what this process knows already.

    Args:
        until: when the run's lease ends.
        cached_view, cached_agent: the conversation's view and the agent as they were last seen here; the store says
            whether they still hold.
        recalled: what a run's first request holds of memory; None: nothing was looked for.
    """

    ids: Ids
    counter: TokenCounter
    models: Models
    settings: EngineSettings
    now: datetime
    until: datetime
    cached_view: View | None = None
    cached_agent: Agent | None = None
    recalled: AutoRecalled | None = None

    def window(self, agent: Agent) -> tuple[int, int]:
        """(tokens of the agent's window, how many of them are kept for the answer)."""
        tokens = window_tokens(agent, self.models, self.settings)
        return tokens, reserve_tokens(tokens, self.settings.reserve_tokens)
