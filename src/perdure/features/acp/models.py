"""The choice of a session's model, as an option of the protocol."""

from __future__ import annotations

from acp import schema

from perdure.core.conversations import MODEL, Conversation
from perdure.core.errors import InvalidInput
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

Options = list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]


async def model_options(perdure: AsyncPerdure, agent: AsyncAgent, conversation: Conversation) -> Options:
    """The models that a session can have, with the one that it has. Raises: NotFound: the agent is gone."""
    own = (await perdure.agent(agent.id)).info.model  # others can have changed it
    current = conversation.settings.get(MODEL) or own
    options = [
        schema.SessionConfigSelectOption(value=one, name=one, description="The agent's own" if one == own else None)
        for one in sorted({*perdure.models, own, current})
    ]
    about = "Which model answers in this session; the agent keeps its own elsewhere."
    shown = {"type": "select", "id": MODEL, "category": "model", "name": "Model", "description": about}
    return [schema.SessionConfigOptionSelect.model_validate({**shown, "currentValue": current, "options": options})]


async def set_option(
    perdure: AsyncPerdure, agent: AsyncAgent, conversation: Conversation, name: str, value: str | bool
) -> Conversation:
    """Give a session another model, or with the agent's own what the agent has, and return its conversation.

    Raises: InvalidInput: there is no such option, or it has no such value; ModelNotFound.
    """
    if name != MODEL or not isinstance(value, str) or not value:
        raise InvalidInput(
            f"a session has the option {MODEL!r} with the handle of a model, not {name!r:.80} {value!r:.80}"
        )
    own = (await perdure.agent(agent.id)).info.model
    return await agent.update_conversation(conversation.id, model=None if value == own else value)
