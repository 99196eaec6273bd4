"""Helpers on the wire. No part of Letta's API."""

from __future__ import annotations

from perdure.features.helpers.catalog import Helper
from perdure.features.helpers.service import HelperRoute
from perdure.server.wire.shapes import WireShape, computed


class HelperShape(WireShape, of=Helper, fields="name layer memory problem"):
    """A helper. `problem`: why it can't be called, or empty. `missing`: unknown tools in its definition. `notes`: parts
    of its definition without effect."""

    description: str = computed(lambda helper: helper.definition.description)
    plugin: str | None = computed(lambda helper: helper.definition.plugin or None)
    path: str | None = computed(lambda helper: str(helper.definition.path) if helper.definition.path else None)
    model: str | None = computed(lambda helper: helper.field("model"))
    color: str | None = computed(lambda helper: helper.field("color"))
    max_turns: int | None = computed(lambda helper: helper.field("max_turns"))
    max_cost_usd: float | None = computed(lambda helper: helper.field("max_cost_usd"))
    tools: list[str] = computed(lambda helper: list(helper.tools))
    missing: list[str] = computed(lambda helper: list(helper.missing))
    notes: list[str] = computed(lambda helper: list(helper.notes))
    prompt: str = computed(lambda helper: helper.prompt)


class HelperRouteShape(WireShape, of=HelperRoute, fields="name wish model source reason"):
    """The model of a helper that is called without one. `model` is null if it can't be called."""
