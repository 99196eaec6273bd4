"""The form by which a browser or program sends an export."""

from __future__ import annotations

from typing import cast

from starlette.datastructures import UploadFile
from starlette.requests import Request

from perdure.core.errors import FileTooLarge, InvalidInput
from perdure.features.imports.sources.items import IMPORT_SOURCES, ImportSource
from perdure.features.imports.values import ImportReport
from perdure.library.parts.checks import check_choice
from perdure.library.perdure import AsyncPerdure

LABEL_CHARS = 100
_YES = ("true", "1", "yes", "on", "check")


async def import_form(library: AsyncPerdure, request: Request) -> tuple[ImportReport, bool]:
    """Import the file of a form; or only look, if its field `dry_run` says yes or `choice` is `check`. Return what was
    found, and whether it was imported. Raises: InvalidInput, StoreError."""
    try:
        return await _import_form(library, request)
    except FileTooLarge as error:
        error.args = (
            f"the file has {error.size:,} bytes, an upload may have {error.limit:,}: `perdure import SOURCE FILE` takes"
            " it in a terminal, or raise PERDURE_FILE_LIMIT_BYTES",
        )
        raise


async def _import_form(library: AsyncPerdure, request: Request) -> tuple[ImportReport, bool]:
    """Do what `import_form` says. Raises: InvalidInput, StoreError."""
    async with request.form(max_files=1, max_fields=10) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise InvalidInput("file: no file was chosen")
        texts = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
        on = {name for name, value in texts.items() if value.lower() in _YES}
        check_choice("source", texts.get("source", ""), IMPORT_SOURCES)
        source, label = cast(ImportSource, texts["source"]), file.filename[-LABEL_CHARS:]
        agent = texts.get("agent") or None
        if on & {"dry_run", "choice"}:
            return await library.imports.plan(source, file.file, agent=agent, label=label), False
        facts = "facts" in on
        return await library.imports.run(source, file.file, agent=agent, facts=facts, label=label), True
