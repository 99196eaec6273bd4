"""Chats of programs that know OpenAI's API only, with an agent: each request goes on in its conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.errors import EmptyMessage, InvalidInput, MessageTooLarge
from perdure.core.ids import ConversationId, MessageId, RunId
from perdure.core.incoming.principals import current_principal
from perdure.core.messages import Text
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.domain.conversations.importing import ImportedMessage
from perdure.engine.budget import check_key_size
from perdure.engine.conversations.importing import make_room
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.accept import Accepted
from perdure.features.openai_front import units
from perdure.features.openai_front.values import Chat, ChatPlace, digest_of, in_one_form
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.part import AsyncPart

NO_RESULT = "The caller gave no result."


class Chats(AsyncPart):
    """The chats of programs with one agent."""

    async def begin(self, chat: Chat) -> Accepted:
        """Begin the run that answers a request, or return that of the same request before.

        Raises: InvalidInput: it says nothing new; NotFound: what it names; as `AsyncRequests.send_request`.
        """
        agent = AsyncAgentById(self._app, self._id)
        if not chat.new:
            if not chat.answers:
                raise InvalidInput("messages: no user says anything after the last answer, so there is none to give")
            inputs = self._ports.inputs()
            found = await self._ports.store.read(units.find_answered, self._id, chat, inputs)
            return await agent.send_request(
                RunRequest(
                    agent_id=self._id,
                    conversation_seq=found.seq,
                    idempotency_key=f"openai {chat.request_digest}" if chat.turns else None,
                    answers=chat.answers,
                    client_tools=chat.client_tools,
                    options=chat.options,
                )
            )
        place = await self.find_place(chat, RunId(self._ports.ids.new("run")))
        new, answers = chat.new, chat.answers or None
        if not place.is_repeat:
            answers = await with_lost_results(agent, chat.answers, place.conversation.id)
        if place.system_is_new:
            new = (NewMessage((Text(chat.system),), role="system"), *new)
        return await agent.send_request(
            RunRequest(
                agent_id=self._id,
                conversation_seq=place.conversation.seq,
                messages=new,
                run_id=RunId(place.said_in),
                idempotency_key=f"openai {place.said_in}",
                identity=chat.request_digest,
                answers=answers,
                client_tools=chat.client_tools,
                options=chat.options,
            )
        )

    async def texts(self, ids: Sequence[MessageId]) -> Mapping[MessageId, str]:
        """The texts of those of these messages that the agent has."""
        return await self._ports.store.read(units.find_texts, self._id, ids) if ids else {}

    async def find_place(self, chat: Chat, said_in: str, answer: str | None = None) -> ChatPlace:
        """Where a request goes on, see `units.find_place`, with all that was said before it. Raises: EmptyMessage."""
        if not chat.turns or not chat.new or chat.has_blank:
            raise EmptyMessage
        if answer is None:
            check_key_size(len(chat.asked))
            limit = self._ports.settings.message_limit_chars
            sizes = [sum(len(part.text) for part in one.parts if isinstance(part, Text)) for one in chat.new]
            if max(sizes) > limit:
                raise MessageTooLarge(size=max(sizes), limit=limit)
        new_id, inputs = ConversationId(self._ports.ids.new("conversation")), self._ports.inputs()
        most = current_principal.get().limits.message_chars if answer is None else None
        place = await self._ports.store.write(
            units.find_place, self._id, chat, said_in, new_id, inputs, answer=answer, most_chars=most
        )
        if place.added:
            await make_room(self._id, place.conversation.seq, self._ports)
        return place

    async def keep(self, chat: Chat, answer: str) -> None:
        """Add a chat that somebody else has answered to its conversation, and the answer. Raises: InvalidInput,
        NotFound, StoreError."""
        if chat.new:
            await self.find_place(chat, "", answer)
        elif answer:  # it goes on behind the results of tools
            inputs, turn = self._ports.inputs(), chat.turns[-1]
            found = await self._ports.store.read(units.find_answered, self._id, chat, inputs)
            id_ = f"{turn.digest}:{digest_of(answer)}"
            said = ImportedMessage(role="assistant", text=in_one_form(answer), occurred_at=inputs.now, id=id_)
            await AsyncAgentById(self._app, self._id).import_messages([said], conversation=found.id)


async def with_lost_results(
    agent: AsyncAgentById, answers: Sequence[Answer], conversation: ConversationId | None = None
) -> tuple[Answer, ...] | None:
    """The answers, and one that says that no result came for each call of the caller that waits without one: else an
    agent would refuse each message of a program that has forgotten its calls. None: there are none. In a
    `conversation` of a chat program, results of calls that do not wait are left out: another model made them."""
    given = {answer.call_id for answer in answers}
    waiting = await agent.pending(conversation=conversation)
    lost = [call.call_id for call in waiting if call.awaits_client and call.call_id not in given]
    if conversation is not None:
        known = {call.call_id for call in waiting}
        answers = [answer for answer in answers if answer.call_id in known]
    return (*answers, *(ToolReturn(call_id, NO_RESULT, status="error") for call_id in lost)) or None
