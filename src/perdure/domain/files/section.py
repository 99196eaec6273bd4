"""What prompts and logs are told of an agent's files, read from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from perdure.context.sections.directories import DirectoryView, OpenFile, directories_xml, file_deltas, skeleton_tokens
from perdure.core.errors import NotFound
from perdure.core.files import AgentFile, Folder
from perdure.core.ids import AgentId, FileId, FolderId
from perdure.core.ports import TokenCounter
from perdure.domain.files.views import LEAST_VIEW_TOKENS, FileLimits, view_of
from perdure.storage.tx import Tx

__all__ = ["deltas_of_files", "is_of_files", "section_of_files"]

CLOSED_SHOWN = 50
FOLDERS_SHOWN = 20
NEWEST_TOLD = 5
TOLD_TOKENS = 500
"""Of the lines of a file that somebody else opened: enough to know what it is, and open_files shows the rest."""


def is_of_files(key: str) -> bool:
    """Whether what a conversation has seen is a folder or a file, not a block."""
    return key.startswith(("source-", "file-"))


def section_of_files(tx: Tx, agent_id: AgentId, limits: FileLimits, *, most: int, counter: TokenCounter) -> str:
    """The section of the prompt, at most `most` tokens long; empty for an agent without folders.

    Lines of the file used last are shown first; what has no room any more is said to be open only.
    """
    folders = tx.folders.of_agent(agent_id)
    if not folders:
        return ""
    by_use = list(tx.agent_files.opened(agent_id))[: limits.max_open]
    opened = {file.file.id for file in by_use}
    views: list[DirectoryView] = []
    for folder in folders[:FOLDERS_SHOWN]:
        files = tx.agent_files.list(agent_id, above=(folder.number, -1), limit=CLOSED_SHOWN + len(opened))
        views.append(
            DirectoryView(
                folder,
                tuple(OpenFile(file) for file in by_use if file.file.folder_id == folder.id),
                tuple(file for file in files if file.file.folder_id == folder.id and file.file.id not in opened)[
                    :CLOSED_SHOWN
                ],
            )
        )
    cut, taken = skeleton_tokens(views, max_open=limits.max_open, most=most, counter=counter)
    left = most - taken
    shown = {one.file.file.id for view in cut for one in view.opened}
    texts: dict[FileId, str] = {}
    for file in by_use:
        if left < LEAST_VIEW_TOKENS:
            break
        if file.file.id in shown and (text := _view(tx, file, limits, left, counter)):
            texts[file.file.id] = text
            left -= counter.count(text) + 2
    filled = [
        replace(
            view,
            opened=tuple(
                OpenFile(one.file, texts.get(one.file.file.id, ""))
                for one in sorted(view.opened, key=lambda one: one.file.file.number)
            ),
        )
        for view in cut
    ]
    return directories_xml(filled, max_open=limits.max_open)


def _view(tx: Tx, file: AgentFile, limits: FileLimits, tokens: int, counter: TokenCounter) -> str:
    last = max(file.last_line, file.first_line)
    room = tokens - 30  # the heading
    view = view_of(tx, file.file, file.first_line, last, max_chars=limits.view_chars, tokens=room, counter=counter)
    cut = f"\n[cut: it is open up to line {file.last_line}]" if view.last_line < file.last_line else ""
    return f"{view.whole}{cut}" if view.text or not file.file.line_count else ""


def deltas_of_files(
    tx: Tx,
    agent_id: AgentId,
    seen: Mapping[str, int],
    now: Mapping[str, int],
    *,
    shown: Mapping[str, int],
    limits: FileLimits,
    counter: TokenCounter,
) -> tuple[str, ...]:
    """The texts of the delta messages about folders and files that bring a log from what it has seen to `now`.

    Args:
        shown: what the prefix in front of the log shows.
    """
    before = {key: version for key, version in seen.items() if is_of_files(key)}
    after = {key: version for key, version in now.items() if is_of_files(key)}
    if before == after:
        return ()
    folders: dict[str, Folder] = {folder.id: folder for folder in tx.folders.of_agent(agent_id)}
    newest: dict[str, Sequence[str]] = {
        key: [file.name for file in tx.files.list(FolderId(key), newest_first=True, limit=NEWEST_TOLD)]
        for key in folders
        if before.get(key) != after.get(key)
    }
    opened: dict[str, OpenFile] = {}
    for key, version in after.items():
        if key in folders or before.get(key) == version or shown.get(key) == version:
            continue
        with suppress(NotFound):
            file = tx.agent_files.get(agent_id, FileId(key))
            opened[key] = OpenFile(file, _view(tx, file, limits, TOLD_TOKENS, counter))
    names: dict[str, str] = {}
    for key in before.keys() - after.keys():
        with suppress(NotFound):
            if key.startswith("source-"):
                names[key] = tx.folders.get(FolderId(key)).name
            else:
                names[key] = tx.files.get(FileId(key)).name
    return file_deltas(before, after, shown=shown, folders=folders, newest=newest, opened=opened, names=names)
