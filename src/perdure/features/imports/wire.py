"""Imports on the wire. No part of Letta's API."""

from __future__ import annotations

from perdure.features.imports.values import ImportReport, ItemCount
from perdure.server.wire.shapes import WireShape, computed


class ImportCountShape(WireShape, of=ItemCount, fields="new already"):
    """How many of a kind are new, and how many are here already."""


class ImportedAgentShape(WireShape):
    """An agent that gets something; without an id it is not made yet."""

    name: str
    id: str | None


class ImportShape(WireShape, of=ImportReport, fields="source"):
    """What an import did, or would do. `withdrawn`: messages of a branch that the source has left since; `changed`:
    memories with another text there since; `left_out`: why -> how many."""

    agents: list[ImportedAgentShape] = computed(
        lambda report: [ImportedAgentShape.make(None, name=name, id=id_ or None) for name, id_ in report.agents.items()]
    )
    conversations: ImportCountShape
    messages: ImportCountShape
    memories: ImportCountShape
    withdrawn: int
    changed: int
    left_out: dict[str, int] = computed(lambda report: dict(report.left_out))
