"""The prompt section and delta messages about an agent's files, read from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from perdure.context.sections.directories import DirectoryView, OpenFile, directories_xml, file_deltas, skeleton_tokens
from perdure.core.errors import NotFound
from perdure.core.files import AgentFile, Folder
from perdure.core.ids import AgentId, FileId, FolderId
from perdure.core.ports import TokenCounter
from perdure.domain.files.views import LEAST_VIEW_TOKENS, FileLimits, read_view
from perdure.storage.tx import Tx

CLOSED_FILES_MAX = 50
FOLDERS_MAX = 20
NEWEST_NAMES = 5
DELTA_TOKENS = 500
"""The lines of a newly opened file in a delta message; open_files shows the rest."""


def is_file_key(key: str) -> bool:
    """Return whether a key of a conversation's seen versions is a folder or a file, not a block."""
    return key.startswith(("source-", "file-"))


def build_file_section(tx: Tx, agent_id: AgentId, limits: FileLimits, *, most: int, counter: TokenCounter) -> str:
    """Build the prompt section, at most `most` tokens long; empty for an agent without folders.

    Files used last get room for their lines first; the others are listed as open.
    """
    folders = tx.folders.list_by_agent(agent_id)
    if not folders:
        return ""
    by_use = list(tx.agent_files.list_open(agent_id))[: limits.max_open]
    open_ids = {file.file.id for file in by_use}
    views: list[DirectoryView] = []
    for folder in folders[:FOLDERS_MAX]:
        files = tx.agent_files.list(agent_id, above=(folder.number, -1), limit=CLOSED_FILES_MAX + len(open_ids))
        views.append(
            DirectoryView(
                folder,
                tuple(OpenFile(file) for file in by_use if file.file.folder_id == folder.id),
                tuple(file for file in files if file.file.folder_id == folder.id and file.file.id not in open_ids)[
                    :CLOSED_FILES_MAX
                ],
            )
        )
    cut, skeleton = skeleton_tokens(views, max_open=limits.max_open, most=most, counter=counter)
    tokens_left = most - skeleton
    visible = {one.file.file.id for view in cut for one in view.open_files}
    texts: dict[FileId, str] = {}
    for file in by_use:
        if tokens_left < LEAST_VIEW_TOKENS:
            break
        if file.file.id in visible and (text := _render_view(tx, file, limits, tokens_left, counter)):
            texts[file.file.id] = text
            tokens_left -= counter.count(text) + 2
    complete = [
        replace(
            view,
            open_files=tuple(
                OpenFile(one.file, texts.get(one.file.file.id, ""))
                for one in sorted(view.open_files, key=lambda one: one.file.file.number)
            ),
        )
        for view in cut
    ]
    return directories_xml(complete, max_open=limits.max_open)


def _render_view(tx: Tx, file: AgentFile, limits: FileLimits, tokens: int, counter: TokenCounter) -> str:
    """Render the lines of an open file, as many as fit; empty: none does."""
    last = max(file.last_line, file.first_line)
    room = tokens - 30  # the heading
    view = read_view(tx, file.file, file.first_line, last, max_chars=limits.view_chars, tokens=room, counter=counter)
    cut = f"\n[cut: it is open up to line {file.last_line}]" if view.last_line < file.last_line else ""
    return f"{view.whole}{cut}" if view.text or not file.file.line_count else ""


def build_file_deltas(
    tx: Tx,
    agent_id: AgentId,
    seen: Mapping[str, int],
    current: Mapping[str, int],
    *,
    prefix: Mapping[str, int],
    limits: FileLimits,
    counter: TokenCounter,
) -> tuple[str, ...]:
    """Build the delta messages about folders and files between the versions `seen` by a log and the `current` ones.

    Args:
        prefix: the versions in the prefix before the log.
    """
    before = {key: version for key, version in seen.items() if is_file_key(key)}
    after = {key: version for key, version in current.items() if is_file_key(key)}
    if before == after:
        return ()
    folders: dict[str, Folder] = {folder.id: folder for folder in tx.folders.list_by_agent(agent_id)}
    newest: dict[str, Sequence[str]] = {
        key: [file.name for file in tx.files.list(FolderId(key), newest_first=True, limit=NEWEST_NAMES)]
        for key in folders
        if before.get(key) != after.get(key)
    }
    open_files: dict[str, OpenFile] = {}
    for key, version in after.items():
        if key in folders or before.get(key) == version or prefix.get(key) == version:
            continue
        with suppress(NotFound):
            file = tx.agent_files.get(agent_id, FileId(key))
            open_files[key] = OpenFile(file, _render_view(tx, file, limits, DELTA_TOKENS, counter))
    names: dict[str, str] = {}
    for key in before.keys() - after.keys():
        with suppress(NotFound):
            if key.startswith("source-"):
                names[key] = tx.folders.get(FolderId(key)).name
            else:
                names[key] = tx.files.get(FileId(key)).name
    return file_deltas(before, after, prefix=prefix, folders=folders, newest=newest, open_files=open_files, names=names)
