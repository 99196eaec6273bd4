"""The helpers of an agent: which there are, and on which models they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.errors import InvalidInput, ToolError
from perdure.core.text.forms import name_form
from perdure.engine.ports import with_next_model
from perdure.features.helpers.catalog import Helper, Roster, load_roster
from perdure.features.helpers.choices import choose_for
from perdure.features.helpers.routing import ModelSource
from perdure.library.parts.part import AsyncPart
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperRoute:
    """The model of a helper if it is called without one.

    Args:
        wish: the model that its definition names; empty: none.
        model: the handle; None: it can't be called, and `reason` says why.
        source: what named the model.
    """

    name: str
    wish: str
    model: str | None
    source: ModelSource | None
    reason: str


class AsyncHelpers(AsyncPart):
    """The helpers of one agent, as their definitions, the agent's tools and the policy allow.

    The agent can call them as long as it has the tool `run_helper`.
    """

    async def roster(self) -> Roster:
        """All helpers, also those that can't be called, and the files that define none. Raises: NotFound."""
        return await self._store.read(lambda tx: load_roster(tx, tx.agents.get(self._id)))

    async def list(self) -> Sequence[Helper]:
        """All helpers by name, also those that can't be called. Raises: NotFound."""
        return list((await self.roster()).by_name.values())

    async def get(self, name: str) -> Helper:
        """The helper of this name, also one that can't be called. Raises: NotFound; HelperUnknown: there is none."""
        roster = await self.roster()
        return roster.by_name.get(name_form(name)) or roster.get(name)

    async def routes(self) -> Sequence[HelperRoute]:
        """The model of each helper, and why it is that one. Raises: NotFound."""

        def load(tx: Tx) -> tuple[Roster, str]:
            """Return the agent's helpers and its model."""
            agent = tx.agents.get(self._id)
            return load_roster(tx, agent), with_next_model(agent, self._ports.models).model

        roster, parent = await self._store.read(load)
        return [self._route(helper, parent) for helper in roster.by_name.values()]

    def _route(self, helper: Helper, parent: str) -> HelperRoute:
        """The model of one helper for an agent on the model `parent`."""
        wish = helper.field("model", "")
        if helper.problem:
            return HelperRoute(name=helper.name, wish=wish, model=None, source=None, reason=helper.problem)
        try:
            choice = choose_for(helper, parent, self._ports.models, self._app.settings)
        except (ToolError, InvalidInput) as error:
            return HelperRoute(name=helper.name, wish=wish, model=None, source=None, reason=str(error))
        return HelperRoute(name=helper.name, wish=wish, model=choice.model, source=choice.source, reason=choice.reason)
