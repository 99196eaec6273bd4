"""What T3 and T8 need from outside the store."""

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

__all__ = ["Asking", "AutoRecalled"]


@dataclass(frozen=True, slots=True)
class AutoRecalled:
    """What was recalled for a run's newest message, and the event that tells of it, if there is anything to tell."""

    text: str
    event: MemoryRecalled | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What a unit of work that makes or plans a request can't find in the store. `have` is the view this process has
    already, if any, and `agent` the agent as it was then; `hooked` whether hooks are called before a request is made;
    `recalled` what was looked for already, if it was."""

    ids: Ids
    have: View | None
    counter: TokenCounter
    models: Models
    settings: EngineSettings
    now: datetime
    until: datetime
    hooked: bool = False
    recalled: AutoRecalled | None = None
    agent: Agent | None = None

    def window(self, agent: Agent) -> tuple[int, int]:
        """(tokens of the agent's window, how many of them are kept for the answer)."""
        tokens = window_tokens(agent, self.models, self.settings)
        return tokens, reserve_tokens(tokens, self.settings.reserve_tokens)
