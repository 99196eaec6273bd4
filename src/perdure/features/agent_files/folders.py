"""Folders in agent files, with the texts of their files."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from perdure.app import name_text
from perdure.core.errors import AlreadyExists, InvalidInput
from perdure.core.files import Folder
from perdure.core.ids import AgentId
from perdure.domain.files.folders import NAME_CHARS, FolderChanges
from perdure.features.agent_files.reading import FileFolder
from perdure.library.checks import Page
from perdure.library.perdure import AsyncPerdure

_PAGE = Page(limit=100, ascending=True)


async def create_folder(library: AsyncPerdure, folder: FileFolder) -> Folder:
    """Make an empty folder. One of its name that is here already is another one: a number follows the name then.

    Raises: InvalidInput.
    """
    name = folder.fields.get("name")
    wanted = (name if isinstance(name, str) else "").replace("/", "_").strip() or "folder"
    fields: FolderChanges = {
        "description": folder.fields.get("description"),
        "instructions": folder.fields.get("instructions"),
        "metadata": folder.fields.get("metadata") or {},
    }
    for number in itertools.count(1):
        suffix = f" ({number})" if number > 1 else ""
        try:
            return await library.services.folders.create(
                {**fields, "name": wanted[: NAME_CHARS - len(suffix)] + suffix}
            )
        except AlreadyExists:
            continue
    raise AssertionError("some number is free")


async def add_files(library: AsyncPerdure, made: Folder, folder: FileFolder, warnings: list[str]) -> None:
    """Put the files of a folder into the one that was made of it; files that it can't have are left out."""
    for name, text in folder.texts.items():
        data = text.encode("utf-8", "replace")
        try:
            await library.services.files.upload(
                made.id, data, name=name_text(name), original_name=name, if_exists="suffix"
            )
        except InvalidInput as error:
            warnings.append(f"file {name!r:.80} of folder {made.name!r:.80} is left out: {error!s:.300}")


async def list_folders(library: AsyncPerdure, agent_id: AgentId) -> Sequence[tuple[Folder, dict[str, str]]]:
    """The agent's folders, each with the texts of its files by their names; files without a text are left out."""
    return [
        (folder, await _texts_of(library, folder)) for folder in await library.services.folders.list_of_agent(agent_id)
    ]


async def _texts_of(library: AsyncPerdure, folder: Folder) -> dict[str, str]:
    files, page, texts = library.services.files, _PAGE, dict[str, str]()
    while states := await files.list(folder.id, page):
        for state in states:
            if state.file.status == "completed":
                texts[state.file.name] = await files.read(folder.id, state.file.id, 1, None)
        page = replace(page, after=states[-1].file.id)
    return texts
