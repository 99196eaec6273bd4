"""The form by which a browser or program sends an export."""

from __future__ import annotations

from typing import cast

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from perdure.core.errors import FileTooLarge, InvalidInput
from perdure.features.imports.common.values import ImportReport
from perdure.features.imports.sources.items import ImportSource
from perdure.library.perdure import AsyncPerdure

LABEL_CHARS = 100
_YES = ("true", "1", "yes", "on", "check")


async def import_form(library: AsyncPerdure, request: Request) -> tuple[ImportReport, bool]:
    """Import the file of a form; or only look, if its field `dry_run` says yes or `choice` is `check`. Return what was
    found, and whether it was imported. Raises: InvalidInput, StoreError."""
    try:
        async with request.form(max_files=1, max_fields=10) as form:
            return await _import_file(library, form)
    except FileTooLarge as error:
        error.args = (
            f"the file has {error.size:,} bytes, an upload may have {error.limit:,}: `perdure import SOURCE FILE` takes"
            " it in a terminal, or raise PERDURE_FILE_LIMIT_BYTES",
        )
        raise


async def _import_file(library: AsyncPerdure, form: FormData) -> tuple[ImportReport, bool]:
    """Do what `import_form` says. Raises: InvalidInput, StoreError."""
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise InvalidInput("file: no file was chosen")
    texts = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    on = {name for name, value in texts.items() if value.lower() in _YES}
    label, do = file.filename[-LABEL_CHARS:], library.imports
    chosen = (cast(ImportSource, texts.get("source", "")), file.file)
    if on & {"dry_run", "choice"}:
        return await do.plan(*chosen, agent=texts.get("agent") or None, label=label), False
    return await do.run(*chosen, agent=texts.get("agent") or None, facts="facts" in on, label=label), True
