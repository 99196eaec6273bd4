"""Memory around a model's answer: what is recalled in front of it, and what is kept of the chat behind it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.app import App
from perdure.context.sections.words import MEMORY_BEFORE, MESSAGE_ITSELF
from perdure.core.agents import AgentFilter
from perdure.core.errors import NotFound, PerdureError
from perdure.core.ids import AgentId, KeyId
from perdure.features.openai_front.feature import MEMORY_OF
from perdure.features.openai_front.open_answers import KnownAgents
from perdure.features.openai_front.service import Chats
from perdure.features.openai_front.values import FOR_KEY, Chat, ChatPlace, typed_text
from perdure.library.agent import AsyncAgent, AsyncAgentById
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure

log = logging.getLogger(__name__)

DEFAULT_AGENT = "memory"
RECALL_TOKENS = 1_000
RECALL_CHARS = 1_000
"""The newest words of a long message say what it asks."""
KEPT_S = 10
"""So long the agent of a key is remembered."""


async def agent_of_key(library: AsyncPerdure, name: str | None, key_id: KeyId | None, known: KnownAgents) -> AsyncAgent:
    """Return the agent with this name or id; by default the key's agent, created at first use. Raises: NotFound."""
    if name:
        return await library.agent(name)
    until, agent_id = known.get(key_id or "", (0.0, AgentId("")))
    if until > time.monotonic():
        with contextlib.suppress(NotFound):  # it was deleted
            return await library.agent(agent_id)
    found = await _own_agent(library, key_id)
    known[key_id or ""] = time.monotonic() + KEPT_S, found.id
    return found


async def _own_agent(library: AsyncPerdure, key_id: KeyId | None) -> AsyncAgent:
    about = "The memory of programs that ask models through /openai/v1."
    if key_id is None:
        return await library.get_or_create_agent(DEFAULT_AGENT, description=about)
    where = AgentFilter(holding=((MEMORY_OF, FOR_KEY, key_id),))
    for agent in await library.all_agents.page(where, Page(1, ascending=False)):
        return await library.agent(agent.id)
    own = {MEMORY_OF: {FOR_KEY: key_id}}
    return await library.get_or_create_agent(f"{DEFAULT_AGENT}-{key_id}", description=about, settings=own)


async def recall(app: App, agent: AsyncAgentById, chat: Chat) -> str:
    """What the agent remembers about a chat's newest words, without what the chat sends itself; may be empty."""
    said = chat.new or [one.text for one in chat.texts if one.role == "user"][-1:]  # none behind the result of a tool
    query = typed_text("\n".join(said))[-RECALL_CHARS:].strip()
    if not query:
        return ""
    try:
        here = await Chats(app, agent.id).earlier(chat) if chat.sends_again else None
        found = await agent.recall(query, without=here, budget_tokens=RECALL_TOKENS)
    except Exception:  # the model answers without it
        log.exception("nothing was recalled from the memory of %s", agent.id)
        return ""
    return f"{MEMORY_BEFORE}\n\n{found.text}" if found.sources else ""


def with_recalled(messages: Sequence[Mapping[str, Any]], recalled: str) -> list[Mapping[str, Any]]:
    """Return the messages of a request with the recalled memory put into the newest user message, before its words:
    earlier messages stay the same for the provider's cache, and many models' templates take a system text only at the
    beginning."""
    place = max((place for place, one in enumerate(messages) if one.get("role") == "user"), default=None)
    if not recalled or place is None:
        return [*messages]
    content = messages[place].get("content") or ""
    if isinstance(content, str):
        said: Any = f"{recalled}\n\n{MESSAGE_ITSELF}\n\n{content}"
    else:
        said = [{"type": "text", "text": f"{recalled}\n\n{MESSAGE_ITSELF}"}, *content]
    return [*messages[:place], {**messages[place], "content": said}, *messages[place + 1 :]]


class ChatKeeping:
    """Keeps a chat with a model in the memory of an agent; `place`: where what the user says was kept. Errors are
    logged: the answer is given all the same."""

    def __init__(self, app: App, agent_id: AgentId, chat: Chat) -> None:
        self._chats, self._agent_id, self._chat = Chats(app, agent_id), agent_id, chat
        self.place: ChatPlace | None = None

    async def before(self) -> None:
        """Before the model answers, store the user's new messages in the conversation of the chat."""
        if self._chat.new:
            with self._logged():
                self.place = await self._chats.find_place(self._chat, "")

    async def answer(self, text: str) -> None:
        """Keep the answer, too."""
        with self._logged():
            await self._chats.keep_answer(self._chat, self.place, text)

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Log errors of the memory, so that the answer is not lost with them."""
        try:
            yield
        except PerdureError as error:
            log.warning("a chat with a model was not kept in the memory of %s: %s", self._agent_id, error)
