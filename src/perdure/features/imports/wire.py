"""Imports on the wire. No part of Letta's API."""

from __future__ import annotations

from perdure.features.imports.common.values import ImportReport, ItemCount
from perdure.server.wire.shapes import WireShape


class ImportCountShape(WireShape, of=ItemCount, fields="new already"):
    """How many of a kind are new, and how many are here already."""


class ImportShape(WireShape, of=ImportReport, fields="source"):
    """What an import did, or would do. `agents`: name -> id of those that get something, empty where one is not made
    yet; `withdrawn`: messages of a branch that the source has left since; `changed`: memories with another text,
    and conversations with another title there since; `left_out`: why -> how many."""

    agents: dict[str, str]
    conversations: ImportCountShape
    messages: ImportCountShape
    memories: ImportCountShape
    withdrawn: int
    changed: int
    left_out: dict[str, int]
