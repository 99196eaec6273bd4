"""What the classes of all nouns share: each is made for the whole store or for one agent, without a query."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from perdure.app import App
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, ConversationId
from perdure.core.text.reprs import short_repr
from perdure.library.units import find_conversation
from perdure.storage.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="AsyncPart")


class AsyncPart:
    """One kind of thing, of the whole store or of one agent, with everything that can be done to it.

    Library, HTTP, CLI and pages call the same methods: they hold the units of work, the paging and the checks. Where
    the part is an agent's, the things of another one are not found.
    """

    __repr__ = short_repr("_agent_id")

    def __init__(self, app: App, agent_id: AgentId | None = None) -> None:
        self._app, self._ports, self._agent_id = app, app.ports, agent_id

    @property
    def _id(self) -> AgentId:
        """The agent's id. Raises: InvalidInput: the part is the whole store's."""
        if self._agent_id is None:
            raise InvalidInput(f"{type(self).__name__} of all agents can't do this: name one, by `agent_of(id)`")
        return self._agent_id

    async def _seq_of(self, conversation: ConversationId | None) -> int:
        """The number of the agent's conversation; by default that of its first. Raises: InvalidInput, NotFound."""
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
    """Make a coroutine of a method that is one unit of work: callers leave its transaction out."""
    return _in_transaction(unit, "read")


def writes(unit: Callable[Concatenate[S, Tx, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """As `reads`, for a unit that changes something: all of it is durable then, or nothing is written."""
    return _in_transaction(unit, "write")


def _in_transaction(
    unit: Callable[Concatenate[S, Tx, P], T], kind: Literal["read", "write"]
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    async def run(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        # The store's threads have contexts of their own, and units ask who sent the request.
        context, store = contextvars.copy_context(), self._ports.store
        transact = store.read if kind == "read" else store.write
        return await transact(lambda tx: context.run(unit, self, tx, *args, **kwargs))

    shown = inspect.signature(unit)
    method: Any = functools.update_wrapper(run, unit)
    method.__signature__ = shown.replace(parameters=[one for one in shown.parameters.values() if one.name != "tx"])
    return method  # type: ignore[no-any-return]
