"""Imports from other programs, from an uploaded file. No part of Letta's API."""

from __future__ import annotations

from fastapi import Request

from perdure.features.imports.forms import import_form
from perdure.features.imports.wire import ImportShape
from perdure.server.wire.http import Library, Router

router = Router(tags=["imports"])


@router.post("/v1/imports")
async def import_export(library: Library, request: Request) -> ImportShape:
    """Import the export of another program, sent as a form: `file`, `source`, and `agent`, `facts` and `dry_run`.

    With `dry_run` everything is read and counted, and nothing is stored.
    """
    return ImportShape.make((await import_form(library, request))[0])
