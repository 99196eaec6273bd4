"""What a model is asked outside a run: one prompt with its answer, and the payload of a request that is not sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.context.sections.assemble import assemble
from perdure.core.errors import EmptyMessage, MessageTooLarge
from perdure.core.ids import AgentId, ConversationId, MessageId
from perdure.core.messages import Draft, Message, Text, text_of
from perdure.core.models import ModelOptions, ModelRequest
from perdure.core.runs import Recipe, RunOptions, Usage
from perdure.engine.approvals.answers import SKILL
from perdure.engine.budget import CallBudget, check_agent_size, check_key_size
from perdure.engine.compaction.room import RequestPreview, preview
from perdure.engine.ports import with_next_model
from perdure.engine.records.rows import engine_drafts
from perdure.engine.records.run_request import NewMessage
from perdure.library.messages.requests import fetch_images
from perdure.library.parts.part import AsyncPart, find_conversation
from perdure.library.parts.providers import ModelHandles
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """A model's answer to a prompt."""

    text: str
    model: str
    usage: Usage


class Prompts(AsyncPart):
    """The operations on models that leave no trace in an agent's log."""

    async def generate(
        self, agent_id: AgentId, prompt: str, *, system: str | None = None, model: str | None = None
    ) -> PromptAnswer:
        """The answer of the agent's model, or of another, to a prompt alone: without memory, history and tools.

        Raises: EmptyMessage, MessageTooLarge, NotFound, ModelNotFound, LimitReached, ModelError.
        """
        limit_chars = self._ports.settings.message_limit_chars
        if not prompt.strip():
            raise EmptyMessage
        if len(prompt) > limit_chars:
            raise MessageTooLarge(size=len(prompt), limit=limit_chars)
        chars = len(prompt) + len(system or "")
        check_key_size(chars)
        agent = await self._ports.store.read(lambda tx: with_next_model(tx.agents.get(agent_id), self._ports.models))
        check_agent_size(chars, agent)
        handle = agent.model if model is None else await ModelHandles(self._app).resolve(model)
        found = self._app.models.find(handle)
        if found is None:
            raise self._app.models.not_found(handle)
        names = ("tool_choice", "parallel_tool_calls", "response_format")
        settings = {name: value for name, value in agent.settings.items() if name not in names}
        draft = Draft(id=MessageId(self._ports.ids.new("message")), role="user", parts=(Text(prompt),))
        request = ModelRequest(
            model=handle,
            system=system or "",
            messages=(self._row(agent_id, draft, 0),),
            options=ModelOptions.from_settings(settings),
        )
        reply = await CallBudget(agent, self._ports).ask(found, request)
        return PromptAnswer(text_of(reply.parts), handle, reply.usage)

    async def build_payload(
        self,
        agent_id: AgentId,
        messages: Sequence[NewMessage],
        *,
        conversation: ConversationId | None = None,
        client_tools: Sequence[Mapping[str, Any]] = (),
        options: RunOptions,
    ) -> Mapping[str, Any]:
        """The body of the request by which a model would be asked to answer these messages in a conversation, by
        default the agent's first. Nothing is stored.

        Raises: InvalidInput, EmptyMessage, NotFound, ModelNotFound, ModelError, ToolError.
        """
        if options.model is not None:
            options = replace(options, model=await ModelHandles(self._app).resolve(options.model))
        messages, _ = await fetch_images(self._app, messages, None)
        inputs = self._ports.inputs()

        def read(tx: Tx) -> RequestPreview:
            found = find_conversation(tx, agent_id, conversation)
            return preview(tx, tx.conversations.get_agent(found.agent_id, found.seq), found, inputs)

        next_request = await self._ports.store.read(read)
        agent, view, seq = next_request.agent, next_request.view, next_request.conversation.seq
        drafts, _ = engine_drafts("memory_delta", next_request.deltas, inputs)
        drafts += [message.draft(MessageId(self._ports.ids.new("message"))) for message in messages]
        if not any(draft.kind == "message" for draft in drafts):
            raise EmptyMessage
        view = view.with_rows(
            [self._row(agent.id, draft, view.next_seq + place, seq) for place, draft in enumerate(drafts)]
        )
        recipe = Recipe(
            prefix_seq=view.prefix.seq,
            upto_message_seq=view.next_seq - 1,
            tail=next_request.status,
            settings_revision=agent.settings_revision,
        )
        settings = ModelOptions.from_settings({**agent.settings, **options.model_settings})
        handle = options.model or agent.model
        request = assemble(handle, view, recipe, options=settings)
        of_client = {tool["name"]: tool for tool in client_tools if tool.get("type") != SKILL}
        tools = (*(tool for tool in request.tools if tool["name"] not in of_client), *of_client.values())
        system = request.system if options.system is None else options.system
        return await self._app.models.payload(replace(request, tools=tools, system=system))

    def _row(self, agent_id: AgentId, draft: Draft, seq: int, conversation_seq: int = 0) -> Message:
        """The message that a draft would be in a conversation of an agent, under the number `seq`."""
        now = self._ports.clock.now()
        return Message(
            id=draft.id,
            agent_id=agent_id,
            seq=seq,
            conversation_seq=conversation_seq,
            role=draft.role,
            parts=draft.parts,
            kind=draft.kind,
            created_at=now,
            occurred_at=now,
        )
