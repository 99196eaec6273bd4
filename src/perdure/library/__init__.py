"""The library face: open a store, make agents, talk to them, look into their memory.

`AsyncPerdure` does the work; `Perdure` is the same with plain calls, by one event loop in one thread.
"""

from __future__ import annotations

from perdure.app import tool
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.library.reply import Reply
from perdure.library.sync import Agent, Perdure
from perdure.memory.agents import NewBlock
from perdure.settings import Settings

__all__ = ["Agent", "AsyncAgent", "AsyncPerdure", "NewBlock", "Perdure", "Reply", "Settings", "tool"]
