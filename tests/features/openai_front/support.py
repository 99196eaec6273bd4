"""A chat program that sends its whole chat with each request, as most do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from perdure import AsyncPerdure, Model, Settings
from perdure.core.conversations import Conversation
from perdure.library.agent import AsyncAgent
from perdure.testing import FakeClock, InlineStore, ScriptedModel
from tests.server.routed import GPT, MODEL, Routed, connected

PATH = "/openai/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the agent behind its model, and a clock."""

    server: Routed
    agent: AsyncAgent
    clock: FakeClock

    async def ask(self, *chat: str, headers: dict[str, str] | None = None, **fields: Any) -> str:
        """The answer to a chat: what users and the assistant say by turns."""
        answer = await self.server.http.post(PATH, json=self.body(*chat, **fields), headers=headers or {})
        assert answer.status_code == 200, answer.text
        self.clock.advance(60)
        return str(answer.json()["choices"][0]["message"]["content"])

    def body(self, *chat: str, system: str = "", **fields: Any) -> dict[str, Any]:
        """The body of such a request."""
        roles = ("user", "assistant")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(chat)]
        first = [{"role": "system", "content": system}] if system else []
        return {"model": "ann", "messages": [*first, *messages], **fields}

    async def conversations(self) -> list[list[str]]:
        """What is said in each conversation but the agent's first, oldest first."""
        found = [one for one in await self.agent.conversations() if one.seq > 0]
        return [await self.said(one) for one in found]

    async def said(self, conversation: Conversation | None = None) -> list[str]:
        """What is said in a conversation."""
        rows = await self.agent.messages(conversation=None if conversation is None else conversation.id)
        return [row.text for row in rows if conversation is not None or row.conversation_seq == 0]

    @property
    def requests(self) -> Sequence[Any]:
        """What the agent's model was asked."""
        model = self.server.library.app.models.find(MODEL)
        assert isinstance(model, ScriptedModel)
        return model.requests


@contextlib.asynccontextmanager
async def program(*script: Any, model: Model | None = None, **options: Any) -> AsyncIterator[Program]:
    """A program in front of an agent with the name `ann`, whose model answers by script."""
    clock = FakeClock()
    library = await AsyncPerdure.open(
        store=InlineStore(),
        models={MODEL: model or ScriptedModel(*script), GPT: ScriptedModel()},
        settings=Settings(model=MODEL, secret_key="for tests, this one"),
        clock=clock,
    )
    async with library, connected(library) as server:
        yield Program(server, await library.create_agent("ann", tools=(), **options), clock)
