"""Agents that are deleted: gone for everybody at once, and removed a few rows at a time."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

from perdure.core.errors import LeaseLost, NotFound
from perdure.core.runs import Lease
from perdure.core.tx import Tx
from tests.contracts.base import LATER, Contract, raises
from tests.contracts.isolation import calls_of, outcome_of, undone
from tests.contracts.organisations import fill

__all__ = ["DeleteContract"]


TELLS = {("agents", "carry_out"), ("agents", "unfinished")}
"""The verbs that see a difference."""


class DeleteContract(Contract):
    async def test_a_deleted_agent_is_gone_from_the_first_step_on(self) -> None:
        """Every verb of the store gives or raises what it will at last, whichever step of one row was the last."""
        async with self.opened() as store:
            await store.write(self.add_agent)
            own = await store.write(lambda tx: fill(self, tx))
            calls = [call for call in calls_of(own, own) if "=them" not in call.name and " of them" not in call.name]
            calls = [call for call in calls if (call.noun, call.verb) not in TELLS]

            async def outcomes() -> dict[str, Any]:
                def outcome(tx: Tx, call: Any) -> Any:
                    verb = getattr(getattr(tx, call.noun), call.verb)
                    bound = inspect.BoundArguments(inspect.signature(verb), dict(call.arguments))
                    return outcome_of(lambda: verb(*bound.args, **bound.kwargs))

                return {call.name: await undone(store, outcome, call) for call in calls}

            await store.write(lambda tx: tx.agents.delete(own.agent.id))
            first, steps = await outcomes(), 0
            while await store.write(lambda tx: tx.agents.carry_out(limit=1, chars=1)):
                steps += 1
                if steps % 8 == 0:
                    now = await outcomes()
                    assert {name: (first[name], now[name]) for name in first if first[name] != now[name]} == {}
            last = await outcomes()

            assert steps > 16
            assert {name: (first[name], last[name]) for name in first if first[name] != last[name]} == {}
            assert {outcome for name, outcome in first.items() if name.startswith("agents.get(")} == {"NotFound"}

    async def test_a_run_of_a_deleted_agent_is_held_by_nobody(self) -> None:
        """Who drives it learns that it is gone, and nobody takes it over; deleting twice is told."""
        async with self.opened() as store:
            own = await store.write(lambda tx: fill(self, tx))
            await store.write(lambda tx: tx.agents.delete(own.agent.id))

            with raises(LeaseLost):
                await store.write(lambda tx: tx.runs.hold(own.run.key, Lease("here", 1), until=LATER))
            assert await store.write(lambda tx: tx.runs.claim(own.run.key, owner="x", at=LATER, until=LATER)) is None
            with raises(NotFound):
                await store.write(lambda tx: tx.agents.delete(own.agent.id))

    async def test_what_is_said_after_a_delete_is_refused(self) -> None:
        """Also by what was read before it."""
        async with self.opened() as store:
            own = await store.write(lambda tx: fill(self, tx))
            await store.write(lambda tx: tx.agents.delete(own.agent.id))
            with contextlib.suppress(NotFound):
                await store.write(self.say, own.agent.id, "hello")
                raise AssertionError("a message was taken for an agent that is deleted")
            assert await store.read(lambda tx: tx.agents.unfinished())
            while await store.write(lambda tx: tx.agents.carry_out()):
                pass
            assert not await store.read(lambda tx: tx.agents.unfinished())
            with raises(NotFound):
                await store.read(lambda tx: tx.messages.get(own.message.id))
