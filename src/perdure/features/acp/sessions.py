"""Sessions of an editor: conversations, each with the folder that it was begun in, a title and a model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from acp import schema

from perdure.core.conversations import Conversation, ConversationFilter
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.features.acp.turns import PromptTurn
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure

PAGE, MODELS_MAX, TITLE_CHARS = 50, 200, 80
MODEL = "model"
OF_AGENT = "default"
"""In place of a model: a session has the agent's."""
_FOLDER = "Begun in an editor, in "
"""Before the folder, in the description of a conversation."""


@dataclass(slots=True)
class EditorSession:
    """A session that the editor has open.

    Args:
        turns: its prompts that have no answer yet, in order; one is answered at a time.
    """

    conversation: Conversation
    turns: list[PromptTurn] = field(default_factory=list)
    answering: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def id(self) -> ConversationId:
        """The id of its conversation."""
        return self.conversation.id


async def begin(agent: AsyncAgent, cwd: str, *, copy_of: Conversation | None = None) -> Conversation:
    """A new conversation that is begun in a folder, with a copy of what another one has in view."""
    made = await (agent.fork_conversation(copy_of.id) if copy_of is not None else agent.new_conversation())
    title = copy_of.summary if copy_of is not None else None
    return await agent.update_conversation(made.id, summary=title, description=f"{_FOLDER}{cwd:.1000}")


def folder_of(conversation: Conversation) -> str | None:
    """The folder that it was begun in; None: not in an editor."""
    description = str(conversation.settings.get("description") or "")
    return description.removeprefix(_FOLDER) if description.startswith(_FOLDER) else None


def title_of(text: str) -> str | None:
    """A title for a conversation that begins with this text; None: it has no words."""
    line = " ".join(text.partition("\n\n")[0].split())
    return (line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…") or None


async def list_infos(
    agent: AsyncAgent, cwd: str | None, after: str | None
) -> tuple[list[schema.SessionInfo], str | None]:
    """A page of the conversations, the newest messages first, without archived ones. The agent's first conversation,
    with which chats in a terminal go on, comes last.

    Args:
        cwd: only those that were begun in this folder.
        after: the last id of the page before.
    Returns: (the page, what `after` is for the next one; None: there is none).
    """
    where = ConversationFilter(agent_id=agent.id, archived=False)
    found = await agent.page_of_states(where, Page(PAGE, ascending=False, after=after), "last_message")
    page = [one.conversation for one in found]
    cursor = page[-1].id if len(page) == PAGE else None
    if cursor is None and (first := await agent.find_conversation()).last_message_at is not None:
        page.append(first)
    infos = [
        schema.SessionInfo(
            session_id=one.id,
            cwd=folder_of(one) or str(Path.home()),
            title=one.summary,
            updated_at=(one.last_message_at or one.created_at).isoformat(),
        )
        for one in page
        if cwd is None or folder_of(one) == cwd
    ]
    return infos, cursor


def model_option(perdure: AsyncPerdure, agent: AsyncAgent, session: EditorSession) -> schema.SessionConfigOptionSelect:
    """The model of a session, with what it can be changed to: the agent's, or another for this session alone."""
    current = str(session.conversation.settings.get("model") or OF_AGENT)
    handles = {handle: handle for handle in (*list(perdure.models)[:MODELS_MAX], current)}
    names = handles | {OF_AGENT: f"{agent.info.model} (the agent's)"}
    options = [schema.SessionConfigSelectOption(value=value, name=name) for value, name in names.items()]
    return schema.SessionConfigOptionSelect(
        id=MODEL, name="Model", category="model", type="select", current_value=current, options=options
    )


async def set_option(agent: AsyncAgent, session: EditorSession, option: str, value: object) -> None:
    """Change the model of a session. Raises: InvalidInput: there is no such option; ModelNotFound."""
    if option != MODEL or not isinstance(value, str):
        raise InvalidInput(f"there is no option {option!r:.80} with the value {value!r:.80}: there is {MODEL!r}")
    model = None if value == OF_AGENT else value
    session.conversation = await agent.update_conversation(session.id, model=model)
