"""The default engine: Perdure's own plan, with summaries that are prepared in the background."""

from __future__ import annotations

from perdure.context.engines.port import ShippedEngine


class Paged(ShippedEngine):
    """A ladder of steps, see `context.window.plan`: few deep evictions, and a tree of summaries."""

    name = "paged"
