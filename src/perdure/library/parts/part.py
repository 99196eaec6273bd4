"""What the classes of all nouns share: each is made for the whole store or for one agent, without a query; and units of
work of several nouns.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from perdure.app import App
from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId
from perdure.core.messages import HISTORY_KINDS, Message
from perdure.core.runs import Run
from perdure.core.text.reprs import short_repr
from perdure.library.parts.checks import check_text
from perdure.storage.store import Store
from perdure.storage.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="HasStore")


class HasStore(Protocol):
    """What runs units of work."""

    @property
    def _store(self) -> Store:
        """The store to run transactions in."""


class AsyncPart:
    """One kind of thing, of the whole store or of one agent, with everything that can be done to it.

    Library, HTTP, CLI and pages call the same methods: they hold the units of work, the paging and the checks. Where
    the part is an agent's, the things of another one are not found.
    """

    __repr__ = short_repr("_agent_id")

    def __init__(self, app: App, agent_id: AgentId | None = None) -> None:
        self._app, self._ports, self._store, self._agent_id = app, app.ports, app.ports.store, agent_id

    @property
    def _id(self) -> AgentId:
        """The agent's id. Raises: InvalidInput: the part is the whole store's."""
        if self._agent_id is None:
            raise InvalidInput(f"{type(self).__name__} of all agents can't do this: name one, by `agent_of(id)`")
        return self._agent_id

    async def _seq_of(self, conversation: ConversationId | None) -> int:
        """The number of a conversation of the agent; None: that of its first. Raises: InvalidInput, NotFound."""
        if conversation is None:
            return 0
        return (await self._ports.store.read(find_conversation, self._id, conversation)).seq


class AsyncAgentPart(AsyncPart):
    """Methods of an agent itself; `AsyncAgent` has them."""

    @property
    def id(self) -> AgentId:
        """The agent's id."""
        return self._id


def reads(unit: Callable[Concatenate[S, Tx, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a coroutine of a method that is one unit of work and only reads: callers leave its argument `tx` out."""
    return _in_transaction(unit, "read")


def writes(unit: Callable[Concatenate[S, Tx, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """As `reads`, for a unit that changes something: all of it is durable then, or nothing is written."""
    return _in_transaction(unit, "write")


def _in_transaction(
    unit: Callable[Concatenate[S, Tx, P], T], kind: Literal["read", "write"]
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The coroutine function of `reads` or `writes`, with the unit's name, docstring, and signature without `tx`."""

    async def run(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the method's unit in a transaction of the store."""
        # The store's threads have contexts of their own, and units ask who sent the request.
        context, store = contextvars.copy_context(), self._store
        transact = store.read if kind == "read" else store.write
        return await transact(lambda tx: context.run(unit, self, tx, *args, **kwargs))

    shown = inspect.signature(unit)
    method: Any = functools.update_wrapper(run, unit)
    method.__signature__ = shown.replace(parameters=[one for one in shown.parameters.values() if one.name != "tx"])
    return method  # type: ignore[no-any-return]


def find_conversation(tx: Tx, agent_id: AgentId | None, conversation: ConversationId | None) -> Conversation:
    """The agent's conversation; without an agent, anybody's; without a conversation, the agent's first. Raises:
    InvalidInput; NotFound, also for another agent's."""
    if conversation is None:
        if agent_id is None:
            raise InvalidInput("agent_id: the conversation 'default' needs one")
        tx.agents.model(agent_id)
        return tx.conversations.get_by_seq(agent_id, 0)
    check_text("conversation", conversation)
    found = tx.conversations.get(conversation)
    if agent_id is not None and agent_id != found.agent_id:
        name = tx.agents.get(agent_id).name
        raise NotFound("conversation", conversation, hint=f"agent {name!r} has no such conversation")
    return found


def find_run(tx: Tx, run_id: RunId, agent_id: AgentId | None) -> Run:
    """The run of this id; of this agent, if one is given. Raises: InvalidInput; NotFound, also for another agent's."""
    check_text("run_id", run_id)
    run = tx.runs.get(run_id)
    if agent_id is not None and run.key.agent_id != agent_id:
        raise NotFound("run", run_id, hint=f"agent {tx.agents.get(agent_id).name!r} has no such run")
    return run


def find_message(tx: Tx, message_id: MessageId) -> Message:
    """A message, also one that a reset took out of view. Raises: NotFound."""
    agent_id, seq = tx.messages.place(message_id)
    rows = tx.messages.list(agent_id, after_seq=seq - 1, before_seq=seq + 1, kinds=None, reset=True, limit=1)
    if not rows:
        raise NotFound("message", message_id, hint="it was removed")
    return rows[0]


def list_run_messages(tx: Tx, run: Run) -> Sequence[Message]:
    """The messages of a run, the caller's and reset ones included; none of a deleted conversation."""
    try:
        tx.conversations.get(run.conversation_id)
    except NotFound:
        return []
    return [
        message
        for message in tx.messages.list_by_run(run, reset=True)
        # A run that goes on with answered calls begins with the message of the run before.
        if message.kind in HISTORY_KINDS and message.run_seq == run.key.seq
    ]
