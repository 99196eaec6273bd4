"""Folders in agent files, with the texts of their files."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from perdure.core.errors import AlreadyExists, InvalidInput
from perdure.core.ids import AgentId
from perdure.features.agent_files.reading import FileFolder
from perdure.features.files.converters.convert import name_text
from perdure.features.files.file_service import FileState
from perdure.features.files.folder_service import AsyncFolder
from perdure.features.files.units import NAME_CHARS, FolderChanges
from perdure.features.files.values import Folder
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure


async def create_folder(library: AsyncPerdure, folder: FileFolder) -> AsyncFolder:
    """Create an empty folder with the name and description of the file's folder; a taken name gets a number behind it.
    Raises: InvalidInput, AlreadyExists: the id is taken."""
    name = folder.fields.get("name")
    wanted = (name if isinstance(name, str) else "").replace("/", "_").strip() or "folder"
    fields: FolderChanges = {"metadata": folder.fields.get("metadata") or {}}
    fields |= {"description": folder.fields.get("description"), "instructions": folder.fields.get("instructions")}
    for number in itertools.count(1):
        suffix = f" ({number})" if number > 1 else ""
        try:
            return await library.folders.add({**fields, "name": wanted[: NAME_CHARS - len(suffix)] + suffix})
        except AlreadyExists as error:
            if error.kind != "folder":  # its id is taken, whatever its name
                raise
    raise AssertionError("some number is free")


async def add_files(made: AsyncFolder, folder: FileFolder, warnings: list[str]) -> None:
    """Upload the files of a folder of the file into `made`, the folder that was made of it. A file that is refused is
    left out, and `warnings` gets a line that says so."""
    for name, text in folder.texts.items():
        data = text.encode("utf-8", "replace")
        try:
            await made.upload(data, name=name_text(name), original_name=name, if_exists="suffix")
        except InvalidInput as error:
            warnings.append(f"file {name!r:.80} of folder {made.name!r:.80} is left out: {error!s:.300}")


async def list_folders(library: AsyncPerdure, agent_id: AgentId) -> Sequence[tuple[Folder, dict[str, str]]]:
    """The agent's folders, each with the texts of its files by their names; files without a text are left out."""
    folders = await library.agent_of(agent_id).files.folders()
    found: list[tuple[Folder, dict[str, str]]] = []
    for folder in folders:
        files = [one.file async for one in list_files(folder) if one.file.status == "completed"]
        found.append((folder.info, {file.name: await folder.text(file.id) for file in files}))
    return found


async def list_files(folder: AsyncFolder) -> AsyncIterator[FileState]:
    """Yield all files of a folder, oldest first."""
    page = Page(limit=100, ascending=True)
    while states := await folder.list_files(page):
        for state in states:
            yield state
        page = replace(page, after=states[-1].file.id)
