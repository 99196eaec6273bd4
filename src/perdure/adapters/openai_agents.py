"""The `Session` of OpenAI's Agents SDK over a session of an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.adapters.opening import in_store, in_thread
from perdure.adapters.sessions import SessionAdapter, SessionItem

try:
    from agents.items import TResponseInputItem
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ImportError as error:
    raise ImportError("the session for OpenAI's Agents SDK needs its base class: install openai-agents") from error


class PerdureSession(SessionAdapter, SessionABC):
    """The items of one session, kept whole. Other processes see them at once.

    Args:
        session_settings: as the SDK's own sessions take them: how many items a run reads.
        options: as `SessionAdapter` takes them.
    """

    _archive = "openai-agents"

    def __init__(
        self,
        session_id: str,
        address: str | Path | None = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.session_settings = coerce_session_settings(session_settings or {})
        super().__init__(session_id, address, **options)

    @in_thread
    @in_store
    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, oldest first; with a limit, the newest of them."""
        most = resolve_session_limit(limit, self.session_settings)
        if most is not None and most <= 0:
            return []
        return list(await self._store.load(self.session_id, limit=most))

    @in_thread
    @in_store
    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items; up to 500, of 250,000 characters together, all or none. Raises: InvalidInput."""
        await self._store.append(self.session_id, [SessionItem(item, _text(item)) for item in items])

    @in_thread
    @in_store
    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; None: there is none."""
        return await self._store.remove(self.session_id, -1)

    clear_session = in_thread(SessionAdapter.clear)


def _text(item: Mapping[str, Any]) -> str:
    """Return what an item says: its text, or the output of a tool."""
    content = item.get("content") or item.get("output") or ""
    if isinstance(content, str):
        return content
    parts: Sequence[Any] = content if isinstance(content, Sequence) else ()
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and part.get("text"))
