"""Chats of programs that know OpenAI's API only, with an agent: each request goes on in its conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.core.errors import EmptyMessage, InvalidInput, MessageTooLarge, PerdureError
from perdure.core.ids import ConversationId, MessageId, RunId
from perdure.core.incoming.principals import current_principal
from perdure.core.messages import Text
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.engine.conversations.importing import make_room
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.accept import Accepted
from perdure.features.openai_front.units import ChatUnits, find_texts
from perdure.features.openai_front.values import Chat, ChatPlace, ChatText
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.part import AsyncPart

NO_RESULT = "The caller gave no result."
REQUEST = "request"
"""The digest of the request that a run answers, in its `form`."""
ANSWERED = (
    "messages: the calls to which these are the results were answered before by another request: with other results,"
    " another message or other options. Send the chat with that answer, or from the message before the calls on"
)


class Chats(AsyncPart):
    """The chats of programs with one agent."""

    async def begin(self, chat: Chat, request: RunRequest) -> Accepted:
        """Begin the run that answers a chat, or return the run of an equal earlier request. Raises: NotFound: a thing
        that it names; InvalidInput, as `AsyncRequests.send_request`."""
        agent = AsyncAgentById(self._app, self._id)
        if not request.messages:
            found, run = await self._ports.store.read(self._units(chat).find_answered)
            resumed = replace(request, conversation_seq=found.seq)
            accepted = await agent.send_request(resumed) if run is None else Accepted(run, (), repeated=True)
            if accepted.run.options.form.get(REQUEST, chat.whole) != chat.whole:
                raise InvalidInput(ANSWERED)
            return accepted
        sizes = [sum(len(part.text) for part in one.parts if isinstance(part, Text)) for one in request.messages]
        if max(sizes) > (limit := self._ports.settings.message_limit_chars):
            raise MessageTooLarge(size=max(sizes), limit=limit)
        place = await self.find_place(chat, self._ports.ids.new("run"))
        messages, answers, conversation = request.messages, request.answers or None, place.conversation
        if not place.is_repeat:
            answers = await with_lost_results(agent, request.answers or (), conversation.id)
        if place.system_is_new:
            messages = (NewMessage((Text(chat.system),), role="system"), *messages)
        request = replace(
            request,
            conversation_seq=conversation.seq,
            messages=messages,
            run_id=RunId(place.said_in),
            idempotency_key=f"openai {place.said_in}",
            identity=chat.request_digest,
            answers=answers,
        )
        try:
            return await agent.send_request(request)
        except PerdureError:
            if not await agent.messages(conversation=conversation.id, limit=1):  # it was made for this
                await agent.delete_conversation(conversation.id)
            raise

    async def texts(self, ids: Sequence[MessageId]) -> Mapping[MessageId, str]:
        """Return id -> text for those of these messages that the agent has."""
        return await self._ports.store.read(find_texts, self._id, ids) if ids else {}

    async def earlier(self, chat: Chat) -> ConversationId | None:
        """Return the conversation with the earlier messages of a chat; None: none is known."""
        return await self._ports.store.read(self._units(chat).find_earlier)

    async def earlier_texts(self, chat: Chat, behind: str) -> Sequence[ChatText]:
        """What was said up to the answer with the id `behind`, or in the conversation that a chat names; nothing: it
        names none. Raises: NotFound: there is no such answer."""
        return await self._ports.store.read(self._units(chat).find_earlier_texts, behind)

    async def find_place(self, chat: Chat, said_in: str) -> ChatPlace:
        """Where a request goes on, see `ChatUnits.find_place`, with all that was said before it. Raises: EmptyMessage,
        InvalidInput, MessageTooLarge, NotFound, ConversationBusy, ApprovalPending."""
        if not chat.turns or not chat.new or not all(text.strip() for text in chat.new):
            raise EmptyMessage
        most = current_principal.get().limits.message_chars if said_in else None
        place = await self._ports.store.write(self._units(chat).find_place, said_in, most_chars=most)
        if place.is_full and said_in:
            await make_room(self._id, place.conversation.seq, self._ports)
        return place

    async def keep_answer(self, chat: Chat, place: ChatPlace | None, answer: str) -> None:
        """Store an answer that another model gave to a chat, after what was kept at `place`, or with the whole chat.
        Raises: InvalidInput, NotFound, ConversationBusy, ApprovalPending, StoreError."""
        if not answer and not chat.new:
            return
        conversation, is_full = await self._ports.store.write(self._units(chat).keep_answer, place, answer)
        if is_full:
            await make_room(self._id, conversation.seq, self._ports)
        self._ports.unread.note((self._id, conversation.seq))

    def _units(self, chat: Chat) -> ChatUnits:
        return ChatUnits(self._id, chat, ConversationId(self._ports.ids.new("conversation")), self._ports.inputs())


async def with_lost_results(
    agent: AsyncAgentById, answers: Sequence[Answer], conversation: ConversationId | None = None
) -> tuple[Answer, ...] | None:
    """Return the answers, with "no result came" for each of the caller's waiting calls that has none: else a program
    that has forgotten its calls could send no message. None: there are none. In a chat program's `conversation`,
    results of calls that don't wait are dropped: another model made them."""
    given = {answer.call_id for answer in answers}
    waiting = await agent.pending(conversation=conversation)
    lost = [call.call_id for call in waiting if call.awaits_client and call.call_id not in given]
    if conversation is not None:
        known = {call.call_id for call in waiting}
        answers = [answer for answer in answers if answer.call_id in known]
    return (*answers, *(ToolReturn(call_id, NO_RESULT, status="error") for call_id in lost)) or None
