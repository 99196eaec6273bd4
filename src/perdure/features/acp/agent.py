"""The agent's side of the protocol: sessions are conversations of one agent, each with the folder that it was begun in,
a title, a model and / commands."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, TypeVar, cast

import acp
from acp import schema

from perdure.cli.chat.slash import COMMANDS, run_command
from perdure.cli.session.session import ChatSession
from perdure.cli.session.source import StdinLines
from perdure.cli.views.text import TextView
from perdure.core.conversations import MODEL, Conversation, ConversationFilter
from perdure.core.errors import Conflict, InvalidInput, NotFound, PerdureError
from perdure.core.ids import ConversationId, MessageId
from perdure.core.model_errors import ModelNotFound
from perdure.domain.conversations.units import SUMMARY_CHARS
from perdure.domain.values import check_short_text
from perdure.features.acp.transport import INTERNAL_ERROR
from perdure.features.acp.turns import PromptTurn, read_prompt
from perdure.features.acp.updates import SessionUpdates, memory_edit
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure

Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])

SESSIONS_PAGE, HISTORY_PAGE, VERSIONS_MAX, TITLE_CHARS, ERROR_CHARS = 50, 500, 10_000, 80, 2_000
_CODES = {NotFound: -32002, InvalidInput: -32602, Conflict: -32602, ModelNotFound: -32602}
"""Kind of error -> the protocol's code; others are internal errors."""
Options = list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]

_OFFERED = ("/memory", "/facts", "/search", "/why", "/recall", "/remember", "/forget", "/undo")
SLASHES = {name: command for name, command in COMMANDS.items() if name in _OFFERED}
"""The commands of the chat that an editor offers: those that ask nothing and stay in the conversation."""


@dataclass(slots=True)
class EditorSession:
    """A session that the editor has open. `turns` are its prompts that have no answer yet: one is answered at a time,
    in order. `sending` sends the commands that it takes."""

    conversation: Conversation
    turns: list[PromptTurn] = field(default_factory=list)
    answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    sending: asyncio.Future[None] | None = None


async def begin(agent: AsyncAgent, cwd: str, *, copy_of: Conversation | None = None) -> Conversation:
    """Begin a conversation in a folder, with a copy of `copy_of`'s view. Raises: InvalidInput: the name is too long."""
    check_short_text("cwd", cwd, SUMMARY_CHARS)
    if copy_of is None:
        return (await agent.create_conversation({"description": cwd})).conversation
    made = await agent.fork_conversation(copy_of.id)
    return await agent.update_conversation(made.id, summary=copy_of.summary, description=cwd)


def folder_of(conversation: Conversation) -> str:
    """Return the folder of an editor's session, which is kept as the description; empty: not an editor's."""
    description = str(conversation.settings.get("description") or "")
    return description if PurePath(description).is_absolute() else ""


def session_info(conversation: Conversation) -> schema.SessionInfo:
    """What a list of sessions has of a conversation."""
    return schema.SessionInfo(
        session_id=conversation.id,
        cwd=folder_of(conversation) or str(Path.home()),
        title=conversation.summary,
        updated_at=(conversation.last_message_at or conversation.created_at).isoformat(),
    )


async def model_options(perdure: AsyncPerdure, agent: AsyncAgent, conversation: Conversation) -> Options:
    """Return the models that a session can use, with its present one. Raises: NotFound: the agent is gone."""
    own = (await perdure.agent(agent.id)).info.model  # others can have changed it
    current = conversation.settings.get(MODEL) or own
    options = [
        schema.SessionConfigSelectOption(value=one, name=one, description="The agent's own" if one == own else None)
        for one in sorted({*perdure.models, own, current})
    ]
    about = "Which model answers in this session; the agent keeps its own elsewhere."
    shown = {"type": "select", "id": MODEL, "category": "model", "name": "Model", "description": about}
    return [schema.SessionConfigOptionSelect.model_validate({**shown, "currentValue": current, "options": options})]


def command_list() -> schema.AvailableCommandsUpdate:
    """The commands that a session takes, for the editor."""
    commands = [
        {"name": name[1:], "description": command.help, "input": {"hint": command.usage.partition(" ")[2]}}
        for name, command in SLASHES.items()
    ]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    return schema.AvailableCommandsUpdate.model_validate(update)


def find_slash(text: str) -> str | None:
    """The line of a text that is a command, as the chat takes it; None: it is a message."""
    words = text.split(maxsplit=1)
    return " ".join(words).rstrip() if words and words[0] in SLASHES else None


async def run_slash(perdure: AsyncPerdure, agent: AsyncAgent, conversation: ConversationId, line: str) -> str:
    """Run the command of a line and return what a chat shows of it, as Markdown. Raises: PerdureError."""
    shown = io.StringIO()
    view = TextView(shown, shown, interactive=False, coloured=False)
    session = ChatSession(perdure, agent, StdinLines(), view, conversation=conversation)  # none of these commands reads
    await run_command(session, line)
    view.finish()
    return f"````text\n{shown.getvalue().rstrip()}\n````"


def with_protocol_errors(method: Method) -> Method:
    """Open the agent, and answer errors of Perdure as the protocol has them, with their text."""

    @wraps(method)
    async def run(self: EditorAgent, *args: Any, **named: Any) -> Any:
        try:
            await self.open()
            return await method(self, *args, **named)
        except (PerdureError, ConnectionError) as error:  # the second: the editor is gone; what it sent is stored
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), INTERNAL_ERROR)
            raise acp.RequestError(code, f"{error!s:.{ERROR_CHARS}}") from error  # some repeat what they were sent

    return cast("Method", run)


class EditorAgent:
    """One agent of Perdure as an editor sees it.

    Args:
        find: finds the agent, or makes it; it is called for the first request that needs one.
        note: shows a text to whoever looks for what is wrong.
    """

    def __init__(
        self, perdure: AsyncPerdure, find: Callable[[], Awaitable[AsyncAgent]], note: Callable[[str], None]
    ) -> None:
        self._perdure, self._find, self._note = perdure, find, note
        self._opened: AsyncAgent | None = None
        self._opening = asyncio.Lock()
        self._sessions: dict[str, EditorSession] = {}
        self._client: Any = None

    async def open(self) -> None:
        """Find the agent, if that is not done. Raises: PerdureError."""
        async with self._opening:
            if self._opened is None:
                self._opened = await self._find()

    @property
    def _agent(self) -> AsyncAgent:
        assert self._opened is not None, "each method that needs an agent opens it"
        return self._opened

    def on_connect(self, conn: Any) -> None:
        """Keep the connection: updates and questions go there."""
        self._client = conn

    async def initialize(self, protocol_version: int, **others: Any) -> schema.InitializeResponse:
        """Say what is spoken here: the newest version that both know."""
        able = {
            "loadSession": True,
            "promptCapabilities": {"image": True, "embeddedContext": True},
            "sessionCapabilities": {"list": {}, "fork": {}, "resume": {}, "close": {}},
        }
        title = "Perdure" if self._opened is None else f"Perdure: {self._opened.name}"
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION) or acp.PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="perdure", title=title, version=version("perdure")),
            agent_capabilities=schema.AgentCapabilities.model_validate(able),
        )

    @with_protocol_errors
    async def new_session(self, cwd: str, **others: Any) -> schema.NewSessionResponse:
        """Begin a conversation."""
        conversation = await begin(self._agent, cwd)
        options = await self._open(conversation, **others)
        return schema.NewSessionResponse(session_id=conversation.id, config_options=options)

    @with_protocol_errors
    async def load_session(self, session_id: str, **others: Any) -> schema.LoadSessionResponse:
        """Show a conversation again, from its beginning. Raises: RequestError: there is none of this id."""
        conversation = await self._agent.find_conversation(ConversationId(session_id))
        async for update in self._history(conversation):
            await self._client.session_update(session_id=session_id, update=update)
        return schema.LoadSessionResponse(config_options=await self._open(conversation, **others))

    @with_protocol_errors
    async def resume_session(self, session_id: str, **others: Any) -> schema.ResumeSessionResponse:
        """Go on with a conversation without showing it again. Raises: RequestError: there is none of this id."""
        conversation = await self._agent.find_conversation(ConversationId(session_id))
        return schema.ResumeSessionResponse(config_options=await self._open(conversation, **others))

    @with_protocol_errors
    async def fork_session(self, cwd: str, session_id: str, **others: Any) -> schema.ForkSessionResponse:
        """Begin a conversation with a copy of what another one has in view."""
        source = await self._agent.find_conversation(ConversationId(session_id))
        conversation = await begin(self._agent, cwd, copy_of=source)
        options = await self._open(conversation, **others)
        return schema.ForkSessionResponse(session_id=conversation.id, config_options=options)

    @with_protocol_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **others: Any
    ) -> schema.SetSessionConfigOptionResponse:
        """Give a session another model from its next model call on, or with the agent's own what the agent has.

        Raises: InvalidInput: there is no such option, or it has no such value; ModelNotFound.
        """
        session = self._session(session_id)
        if config_id != MODEL or not isinstance(value, str) or not value:
            raise InvalidInput(
                f"a session has the option {MODEL!r} with the handle of a model, not {config_id!r:.80} {value!r:.80}"
            )
        own = (await self._perdure.agent(self._agent.id)).info.model
        model = None if value == own else value
        session.conversation = await self._agent.update_conversation(session.conversation.id, model=model)
        options = await model_options(self._perdure, self._agent, session.conversation)
        return schema.SetSessionConfigOptionResponse(config_options=options)

    async def close_session(self, session_id: str, **others: Any) -> schema.CloseSessionResponse:
        """Stop what a session does; its conversation stays, and can be loaded."""
        await self.cancel(session_id)
        self._sessions.pop(session_id, None)
        return schema.CloseSessionResponse()

    @with_protocol_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **others: Any
    ) -> schema.ListSessionsResponse:
        """List the conversations, newest messages first, without archived ones; with `cwd` those that were begun in
        this folder. The agent's first conversation, with which chats in a terminal go on, comes last."""
        where = ConversationFilter(agent_id=self._agent.id, archived=False)
        page = Page(SESSIONS_PAGE, ascending=False, after=cursor)
        found = [one.conversation for one in await self._agent.page_of_states(where, page, "last_message")]
        next_cursor = found[-1].id if len(found) == SESSIONS_PAGE else None
        if next_cursor is None and (first := await self._agent.find_conversation()).last_message_at is not None:
            found.append(first)
        infos = [session_info(one) for one in found if cwd is None or PurePath(cwd) == PurePath(folder_of(one))]
        return schema.ListSessionsResponse(sessions=infos, next_cursor=next_cursor)

    @with_protocol_errors
    async def prompt(self, session_id: str, prompt: Sequence[Any], **others: Any) -> schema.PromptResponse:
        """Answer a message, after those that the session got before it."""
        session = self._session(session_id)
        text, images = read_prompt(prompt)
        turn = PromptTurn(self._agent, session.conversation.id, self._client)
        session.turns.append(turn)
        try:
            async with session.answering:
                if turn.cancelled.is_set():
                    return schema.PromptResponse(stop_reason="cancelled")
                if not images and (line := find_slash(text)) is not None:
                    shown = await run_slash(self._perdure, self._agent, session.conversation.id, line)
                    await turn.update(acp.update_agent_message_text(shown))
                    return schema.PromptResponse(stop_reason="end_turn")
                response = await turn.answer(text, images)
                await self._show_state(session, turn, text)
                return response
        finally:
            session.turns.remove(turn)

    async def cancel(self, session_id: str, **others: Any) -> None:
        """Stop the answers of a session; its prompts then end with `cancelled`."""
        session = self._sessions.get(session_id)
        for turn in list(session.turns) if session is not None else ():
            try:
                await turn.cancel()
            except PerdureError as error:
                self._note(f"session {session_id} could not be cancelled: {error}")

    def _session(self, session_id: str) -> EditorSession:
        """The session of this id. Raises: NotFound: it is not open."""
        if (session := self._sessions.get(session_id)) is None:
            raise NotFound("open session", f"{session_id:.80}", hint="begin or load one first")
        return session

    async def _open(self, conversation: Conversation, mcp_servers: Any = None, **others: Any) -> Options:
        """Open a session of a conversation, and return its options. Its commands are sent after the answer."""
        if mcp_servers:
            names = ", ".join(server.name for server in mcp_servers)
            self._note(f"the editor's MCP servers are not connected ({names}): `perdure mcp add` gives an agent one")
        session = self._sessions.setdefault(conversation.id, EditorSession(conversation))
        session.conversation = conversation
        options = await model_options(self._perdure, self._agent, conversation)
        session.sending = asyncio.ensure_future(self._introduce(session))
        return options

    async def _introduce(self, session: EditorSession) -> None:
        """Send the commands that a session takes, and its models once the providers were asked for theirs."""
        with suppress(PerdureError, ConnectionError):  # neither is worth more than a try
            await self._client.session_update(session_id=session.conversation.id, update=command_list())
            models = self._perdure.app.models
            if models.endpoints and not models.listings:
                await models.refresh()
                options = await model_options(self._perdure, self._agent, session.conversation)
                update = schema.ConfigOptionUpdate(session_update="config_option_update", config_options=options)
                await self._client.session_update(session_id=session.conversation.id, update=update)

    async def _history(self, conversation: Conversation) -> AsyncIterator[Any]:
        """Yield the updates that show a conversation, each message with the changes of memory that came of it."""
        edits: dict[MessageId | None, list[Any]] = {}
        for block in await self._agent.blocks.list():
            for one in reversed(await self._agent.blocks.history(block.label, limit=VERSIONS_MAX)):
                if one.author.kind == "agent" and one.diff:
                    edits.setdefault(one.author.message_id, []).append(memory_edit(one))
        updates, after = SessionUpdates(), -1
        while page := await self._agent.messages(conversation=conversation.id, limit=HISTORY_PAGE, after_seq=after):
            for message in page:
                for update in (*updates.of_message(message), *edits.get(message.id, ())):
                    yield update
            after = page[-1].seq

    async def _show_state(self, session: EditorSession, turn: PromptTurn, text: str) -> None:
        """Send how full the window is after a prompt; a conversation without a title gets one."""
        overview = await self._agent.context(conversation=session.conversation.id)
        used, size = overview.used_tokens, overview.window_tokens
        await turn.update(schema.UsageUpdate(session_update="usage_update", used=used, size=size))
        if session.conversation.summary is None and (title := " ".join(text.split())[:TITLE_CHARS]):
            session.conversation = await self._agent.update_conversation(session.conversation.id, summary=title)
            await turn.update(schema.SessionInfoUpdate(session_update="session_info_update", title=title))
