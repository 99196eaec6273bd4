"""A request to an agent, or to a model with memory around it."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request

from perdure.app import App, converter_of
from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.text.json_strings import sorted_json
from perdure.engine.budget import CallBudget, check_key_size
from perdure.engine.records.run_request import RunRequest
from perdure.engine.run.accept import Accepted
from perdure.features.openai_front.bodies import ChatRequest
from perdure.features.openai_front.capture import ChatKeeping, recall, with_recalled
from perdure.features.openai_front.chores import is_chore
from perdure.features.openai_front.models import MEMORY
from perdure.features.openai_front.proxy import AnswerRelay, ask
from perdure.features.openai_front.service import REQUEST, Chats
from perdure.features.openai_front.values import Chat, ChatPlace, ChatText, ConversationAnchor, digest_of
from perdure.library.agent import AsyncAgent, AsyncAgentById
from perdure.library.perdure import AsyncPerdure
from perdure.scratch import scratch_folder
from perdure.server.wire.http import forget_body, principal_of


def digest_of_body(body: Mapping[str, Any]) -> str:
    """Return a digest of a request, without how it wants the answer sent: a streamed retry equals a plain one."""
    return digest_of(sorted_json({name: one for name, one in body.items() if name not in ("stream", "stream_options")}))


@dataclass(frozen=True)  # without slots, for what is cached
class AgentRequest:
    """A request in the shape of the chat API. `sent`: its body as it came, for providers that speak this API; `whole`:
    the digest of all that the program has sent."""

    library: AsyncPerdure
    request: Request
    body: ChatRequest
    sent: Mapping[str, Any]
    anchor: ConversationAnchor
    whole: str

    @functools.cached_property
    def chat(self) -> Chat:
        """The chat that it sends."""
        messages = self.body.messages
        return Chat(
            texts=[ChatText(one.role, one.said) for one in messages if one.role in ("user", "assistant")],
            results=[message.tool_call_id or "" for message in messages[self.body.newest :] if message.role == "tool"],
            system=self.body.system,
            anchor=self.anchor,
            key=principal_of(self.request).key_id or "",
            # OpenAI's own clients say so.
            is_retry=self.request.headers.get("x-stainless-retry-count", "0") != "0",
            whole=self.whole,
        )

    @property
    def is_beside(self) -> bool:
        """Whether a program asks this beside the chat: nothing of it is kept."""
        texts = self.chat.texts
        if not texts or texts[-1].role != "user":
            return bool(texts) and self._asks_by_system
        return is_chore(texts[-1].text, self.body.system, is_alone=len(texts) == 1)

    @property
    def _asks_by_system(self) -> bool:
        """Whether a system text at the end asks about the chat, as chat programs do for titles."""
        return self.body.messages[-1].role in ("system", "developer")

    async def with_earlier(self, chats: Chats, behind: str) -> AgentRequest:
        """Return the request with what was said in its conversation before, or up to the answer that it follows, as an
        outside model knows only what it is sent. Raises: NotFound."""
        texts = await chats.earlier_texts(self.chat, behind)
        said = [{"role": text.role, "content": text.text} for text in texts]
        messages = self.sent["messages"]  # of which only the instructions stand before
        roles = [message["role"] in ("system", "developer") for message in messages]
        first = [*roles, False].index(False)
        sent = {**self.sent, "messages": [*messages[:first], *said, *messages[first:]]}
        return replace(self, sent=sent, body=parse_chat(sent))

    async def begin(self, agent: AsyncAgentById, echo: Mapping[str, Any] | None = None) -> Accepted:
        """Begin the run that answers it. `echo`: the part of it that a `Response` repeats. Raises: as `Chats`."""
        body = await _with_texts_of_files(self.library.app, self.body)
        form = {REQUEST: self.whole, **({} if echo is None else {"response": dict(echo)})}
        said, answers = body.new_contents()
        request = RunRequest(
            agent_id=agent.id,
            messages=tuple(said),
            answers=tuple(answers),
            client_tools=body.tools_offered,
            options=replace(body.run_options, form=form),
        )
        return await Chats(self.library.app, agent.id).begin(self.chat, request)

    async def pass_on(self, agent: AsyncAgent) -> tuple[AnswerRelay, ChatPlace | None]:
        """Ask the model that it names, or that of the agent, with the agent's memory added; return (its streamed
        answer, where the user's words were kept). Side requests of a chat program are passed on without memory."""
        app, sent, found = self.library.app, dict(self.sent), agent.info
        named = self.body.model.startswith(MEMORY)
        handle = await self.library.handles.resolve(self.body.model.removeprefix(MEMORY)) if named else found.model
        if "max_completion_tokens" in sent and not handle.startswith("openai/"):  # most others know the older name only
            sent["max_tokens"] = sent.pop("max_completion_tokens")
        keeping: ChatKeeping | None = None
        if not self.is_beside:
            check_key_size(sum(map(len, self.chat.new)))
            sent["messages"] = with_recalled(sent["messages"], await recall(app, agent, self.chat))
            keeping = ChatKeeping(app, agent.id, self.chat)
        elif self._asks_by_system:  # the templates of many models take a system text at the beginning only
            sent["messages"] = [*sent["messages"][:-1], {**sent["messages"][-1], "role": "user"}]
        budget = CallBudget(found, app.ports)
        settings = None if named else found.settings
        passing = await ask(app, handle, sent, budget, keeping, settings)
        forget_body(self.request)
        return passing, None if keeping is None else keeping.place


def parse_chat(shape: Mapping[str, Any]) -> ChatRequest:
    """The body of a request. Raises: RequestValidationError."""
    try:
        return ChatRequest.model_validate(shape)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


async def _with_texts_of_files(app: App, body: ChatRequest) -> ChatRequest:
    """Return the request with each new file replaced by its text. Raises: InvalidInput: a file can't be read."""
    messages = list(body.messages)
    for place in range(body.newest, len(messages)):
        parts = messages[place].content
        if parts and not isinstance(parts, str) and any(one.get("type") == "file" for one in parts):
            read = [await _read(app, part, f"messages.{place}") for part in parts]
            messages[place] = messages[place].model_copy(update={"content": read})
    return body.model_copy(update={"messages": messages})


async def _read(app: App, part: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return a part of a message; a file becomes its text, under its name. Raises: InvalidInput."""
    if part.get("type") != "file":
        return part
    file = part.get("file")
    found = file if isinstance(file, Mapping) else {}
    name, data = str(found.get("filename") or "file.txt"), str(found.get("file_data") or "")
    try:
        content = base64.b64decode(data.partition(",")[2] if data.startswith("data:") else data, validate=True)
    except ValueError:
        content = b""
    if not content:
        raise InvalidInput(f"{where}: a file is read from its bytes in base64, file_data, not by an id or address")
    with scratch_folder("file") as folder:
        copy = folder / "file"
        copy.write_bytes(content)
        convert = converter_of(app.settings, app.shared.reading)
        try:
            document = await convert(name, copy, progress=lambda done, total: None)
        except PerdureError as error:
            raise InvalidInput(f"{where}: {error}") from error
    return {"type": "text", "text": f"[file {name}]\n{document.text}"}
