"""Imports from other programs, from an uploaded file. No part of Letta's API."""

from __future__ import annotations

from fastapi import Request

from perdure.features.imports.common.values import ImportReport, ItemCount
from perdure.features.imports.forms import import_form
from perdure.server.wire.http import Library, Router
from perdure.server.wire.shapes import WireShape

router = Router(tags=["imports"])


class ImportCountShape(WireShape, of=ItemCount, fields="new already"):
    """How many of a kind are new, and how many are here already."""


class ImportShape(WireShape, of=ImportReport, fields="source"):
    """The result of an import, or of a dry run. `agents`: name -> id of those that get something (empty: not created
    yet); `withdrawn`: messages that the source no longer has; `changed`: memories with a new text, and conversations
    with a new title; `left_out`: reason -> count."""

    agents: dict[str, str]
    conversations: ImportCountShape
    messages: ImportCountShape
    memories: ImportCountShape
    withdrawn: int
    changed: int
    left_out: dict[str, int]


@router.post("/v1/imports")
async def import_export(library: Library, request: Request) -> ImportShape:
    """Import the export of another program, sent as a form: `file`, `source`, and `agent`, `facts` and `dry_run`.

    With `dry_run` everything is read and counted, and nothing is stored.
    """
    return ImportShape.make((await import_form(library, request))[0])
