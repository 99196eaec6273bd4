"""The section of the prompt that shows an agent's folders: which files there are, and the lines of those it has open.

It shows them as they were when the prefix was written. What happens later is told as it happens: by the result of the
agent's own tool, or by a small delta message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from perdure.context.sections.envelopes import envelope
from perdure.context.sections.expand import largest
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationState
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, FileId, FolderId, is_id
from perdure.core.ports import TokenCounter
from perdure.core.runs import Prefix
from perdure.core.sources import Source
from perdure.core.text.markup import escape_tags
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import MemoryState
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.units import file_source
from perdure.features.files.values import AgentFile, Folder
from perdure.features.files.views import LEAST_VIEW_TOKENS, FileLimits, limits_of, read_view
from perdure.storage.tx import Tx

FILES_SHARE = 0.4
"""The largest share that files may take of what tools, base prompt and blocks leave free."""

CLOSED_FILES_MAX = 50
FOLDERS_MAX = 20
NEWEST_NAMES = 5
DELTA_TOKENS = 500
"""The lines of a newly opened file in a delta message; open_files shows the rest."""

_SKELETONS = ((1_000, 1_000), (20, 1_000), (10, 300), (5, 100), (0, 40), (0, 0))
"""(closed files of each folder, characters of its texts): the first that fits is shown."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file with the lines that are shown of it; without lines if there is no room."""

    file: AgentFile
    text: str = ""


@dataclass(frozen=True, slots=True)
class DirectoryView:
    """A folder with its open files and the first of its other files."""

    folder: Folder
    open_files: tuple[OpenFile, ...] = ()
    closed_files: tuple[AgentFile, ...] = ()


def directories_xml(views: Sequence[DirectoryView], *, max_open: int) -> str:
    """Render the prompt's section of folders; `max_open`: how many files may be open. Empty for no folders."""
    if not views:
        return ""
    count = sum(len(view.open_files) for view in views)
    limits = f"<file_limits>\n- current_files_open={count}\n- max_files_open={max_open}\n</file_limits>"
    return "\n".join(("<directories>", limits, *map(_directory, views), "</directories>"))


def _directory(view: DirectoryView) -> str:
    """Render one folder."""
    folder = view.folder
    lines = [f'<directory name="{_attribute(folder.name)}">']  # with nothing else in it, as clients look for it
    about = {"description": folder.description, "instructions": folder.instructions}
    lines += [f"<{name}>{escape_tags(text)}</{name}>" for name, text in about.items() if text]
    for open_file in view.open_files:
        lines.append(f'<file status="open" name="{_attribute(open_file.file.path)}">')
        lines.append(
            escape_tags(open_file.text) if open_file.text else "[no room to show it: open_files reads its lines]"
        )
        lines.append("</file>")
    for file in view.closed_files:
        state = "closed" if file.file.status in ("completed", "embedding") else file.file.status
        lines.append(f'<file status="{state}" name="{_attribute(file.path)}" lines="{file.file.line_count}"/>')
    hidden_count = folder.file_count - len(view.open_files) - len(view.closed_files)
    if hidden_count > 0:
        lines.append(f"[{hidden_count} more files: grep_files and semantic_search_files look into all of them]")
    lines.append("</directory>")
    return "\n".join(lines)


def fit_skeleton(
    views: Sequence[DirectoryView], *, max_open: int, most: int, counter: TokenCounter
) -> tuple[Sequence[DirectoryView], int]:
    """Cut the views to as many closed files, then folders, as fit into `most` tokens.

    Returns the views, and their tokens without the lines of open files.
    """

    def cut(folders: int, closed: int, chars: int) -> list[DirectoryView]:
        """Return the views limited to so many folders, closed files and characters of a description."""
        return [
            DirectoryView(
                _shorten(view.folder, chars),
                tuple(OpenFile(each.file) for each in view.open_files),
                view.closed_files[:closed],
            )
            for view in views[:folders]
        ]

    def tokens(folders: int, closed: int, chars: int) -> int:
        """Return the tokens of the views with these limits."""
        return counter.count(directories_xml(cut(folders, closed, chars), max_open=max_open))

    for closed, chars in _SKELETONS:
        if (size := tokens(len(views), closed, chars)) <= most:
            return cut(len(views), closed, chars), size
    folders = largest(len(views), lambda count: tokens(count, 0, 0) <= most)
    return cut(folders, 0, 0), tokens(folders, 0, 0)


def _shorten(folder: Folder, chars: int) -> Folder:
    """Return the folder with at most `chars` characters of its description and instructions."""

    def cut(text: str | None) -> str | None:
        """Return a text cut to the limit; None: the limit is 0."""
        return text if not text or len(text) <= chars else f"{text[:chars]}…" if chars else None

    return replace(folder, description=cut(folder.description), instructions=cut(folder.instructions))


def file_deltas(
    before: Mapping[str, int],
    after: Mapping[str, int],
    *,
    prefix: Mapping[str, int],
    folders: Mapping[str, Folder],
    newest: Mapping[str, Sequence[str]],
    open_files: Mapping[str, OpenFile],
    names: Mapping[str, str],
) -> tuple[str, ...]:
    """Build the delta messages between two states of a log: folder or file id -> version.

    Args:
        prefix: the versions in the prefix before the log; they need no message.
        folders: id -> folder, of the agent's.
        newest: folder id -> names of its newest files.
        open_files: id -> open file with the lines to show.
        names: id -> name, of detached folders and closed files, where known.
    """
    texts: list[str] = []
    for key, version in after.items():
        if before.get(key) == version or prefix.get(key) == version:
            continue
        if (folder := folders.get(key)) is not None:
            texts.append(
                envelope(
                    "folder_delta",
                    folder=folder.name,
                    op="changed" if key in before else "attached",
                    files=folder.file_count,
                    newest=list(newest.get(key, ())) or None,
                )
            )
        elif (open_file := open_files.get(key)) is not None:
            texts.append(
                envelope(
                    "file_delta",
                    file=open_file.file.path,
                    op="opened",
                    lines=f"{open_file.file.first_line}-{open_file.file.last_line} of {open_file.file.file.line_count}",
                    text=open_file.text or None,
                )
            )
    for key in before:
        if key not in after:
            kind = "folder" if key.startswith("source-") else "file"
            texts.append(
                envelope(f"{kind}_delta", **{kind: names.get(key)}, op="detached" if kind == "folder" else "closed")
            )
    return tuple(texts)


def _attribute(text: str) -> str:
    """Return a text that can stand in the quotes of an attribute."""
    return escape_tags(text).replace('"', "'")


# --- read from the store


def memory_versions(tx: Tx, opening: ConversationState) -> Mapping[str, int]:
    """Return the versions of the agent's folders and open files by their ids."""
    return tx.of(AgentFiles).list_versions(opening.agent.id) if "folders" in opening.has else {}


def is_searched(tx: Tx, opening: ConversationState) -> bool:
    """Return whether the agent has a folder with files."""
    return "folders" in opening.has and any(one.file_count for one in tx.of(Folders).list_by_agent(opening.agent.id))


def shown_sources(tx: Tx, versions: Mapping[str, int]) -> Sequence[Source]:
    """Return the files among the ids in `versions` as sources of what the prompt says."""
    return [file_source(tx, key) for key in versions if is_id("file", key)]


def _is_file_key(key: str) -> bool:
    """Return whether a key of a conversation's seen versions is a folder or a file, not a block."""
    return key.startswith(("source-", "file-"))


def prefix_section(
    tx: Tx, agent: Agent, versions: Mapping[str, int], inputs: UnitInputs, count_tokens: Callable[[], int]
) -> str:
    """Build the prompt section; empty for an agent without folders."""
    if not any(map(_is_file_key, versions)):
        return ""
    window, reserve = inputs.window(agent)
    limits = limits_of(agent, window)
    most = min(limits.section_tokens, int((window - reserve - count_tokens()) * FILES_SHARE))
    return build_file_section(tx, agent.id, limits, most=most, counter=inputs.counter)


def build_file_section(tx: Tx, agent_id: AgentId, limits: FileLimits, *, most: int, counter: TokenCounter) -> str:
    """Build the prompt section, at most `most` tokens long; empty for an agent without folders.

    Files used last get room for their lines first; the others are listed as open.
    """
    folders = tx.of(Folders).list_by_agent(agent_id)
    if not folders:
        return ""
    by_use = list(tx.of(AgentFiles).list_open(agent_id))[: limits.max_open]
    open_ids = {file.file.id for file in by_use}
    views: list[DirectoryView] = []
    for folder in folders[:FOLDERS_MAX]:
        files = tx.of(AgentFiles).list(agent_id, above=(folder.number, -1), limit=CLOSED_FILES_MAX + len(open_ids))
        views.append(
            DirectoryView(
                folder,
                tuple(OpenFile(file) for file in by_use if file.file.folder_id == folder.id),
                tuple(file for file in files if file.file.folder_id == folder.id and file.file.id not in open_ids)[
                    :CLOSED_FILES_MAX
                ],
            )
        )
    cut, skeleton_tokens = fit_skeleton(views, max_open=limits.max_open, most=most, counter=counter)
    tokens_left = most - skeleton_tokens
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
                OpenFile(open_file.file, texts.get(open_file.file.file.id, ""))
                for open_file in sorted(view.open_files, key=lambda one: one.file.file.number)
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


def memory_deltas(
    tx: Tx, agent: Agent, seen: Mapping[str, int], memory: MemoryState, prefix: Prefix, inputs: UnitInputs
) -> tuple[str, ...]:
    """Build the delta messages about folders and files between the versions `seen` by a log and those of the memory."""
    before = {key: version for key, version in seen.items() if _is_file_key(key)}
    after = {key: version for key, version in memory.versions.items() if _is_file_key(key)}
    if before == after:
        return ()
    agent_id, limits = agent.id, limits_of(agent, inputs.window(agent)[0])
    folders: dict[str, Folder] = {folder.id: folder for folder in tx.of(Folders).list_by_agent(agent_id)}
    newest: dict[str, Sequence[str]] = {
        key: [file.name for file in tx.of(Files).list(FolderId(key), newest_first=True, limit=NEWEST_NAMES)]
        for key in folders
        if before.get(key) != after.get(key)
    }
    open_files: dict[str, OpenFile] = {}
    for key, version in after.items():
        if key in folders or before.get(key) == version or prefix.seen.get(key) == version:
            continue
        with suppress(NotFound):
            file = tx.of(AgentFiles).get(agent_id, FileId(key))
            open_files[key] = OpenFile(file, _render_view(tx, file, limits, DELTA_TOKENS, inputs.counter))
    names: dict[str, str] = {}
    for key in before.keys() - after.keys():
        with suppress(NotFound):
            if key.startswith("source-"):
                names[key] = tx.of(Folders).get(FolderId(key)).name
            else:
                names[key] = tx.of(Files).get(FileId(key)).name
    return file_deltas(
        before, after, prefix=prefix.seen, folders=folders, newest=newest, open_files=open_files, names=names
    )
