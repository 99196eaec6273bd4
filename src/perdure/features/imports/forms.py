"""The form by which a browser or program sends an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, cast

from starlette.datastructures import FormData, UploadFile

from perdure.core.errors import InvalidInput
from perdure.features.imports.sources.items import IMPORT_SOURCES, ImportSource
from perdure.features.imports.values import ImportReport
from perdure.library.parts.checks import check_choice
from perdure.library.perdure import AsyncPerdure

LABEL_CHARS = 100


@dataclass(frozen=True, slots=True)
class ImportForm:
    """An export that was sent, and what is to become of it."""

    file: BinaryIO
    label: str
    source: ImportSource
    agent: str | None
    facts: bool
    dry: bool

    async def carry_out(self, library: AsyncPerdure) -> ImportReport:
        """Import it, or only look what an import would do. Raises: InvalidInput, StoreError."""
        if self.dry:
            return await library.imports.plan(self.source, self.file, agent=self.agent, label=self.label)
        return await library.imports.run(self.source, self.file, agent=self.agent, facts=self.facts, label=self.label)


def read_form(form: FormData) -> ImportForm:
    """Read a form; its file is open as long as the form. Raises: InvalidInput."""
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise InvalidInput("file: no file was chosen")
    texts = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    check_choice("source", texts.get("source", ""), IMPORT_SOURCES)
    return ImportForm(
        file=file.file,
        label=file.filename[-LABEL_CHARS:],
        source=cast(ImportSource, texts["source"]),
        agent=texts.get("agent") or None,
        facts=_is_on(texts.get("facts")),
        dry=_is_on(texts.get("dry_run")) or texts.get("choice") == "check",
    )


def _is_on(text: str | None) -> bool:
    """Whether a field of a form says yes."""
    return (text or "").lower() in ("true", "1", "yes", "on")
