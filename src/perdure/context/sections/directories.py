"""The section of the prompt that shows an agent's folders: which files there are, and the lines of those it has open.

It shows them as they were when the prefix was written. What happens later is told as it happens: by the result of the
agent's own tool, or by a small delta message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.context.retrieval.expand import largest
from perdure.context.sections.envelopes import envelope
from perdure.core.files import AgentFile, Folder
from perdure.core.ports import TokenCounter
from perdure.core.text.markup import escape_tags

_SKELETONS = ((1_000, 1_000), (20, 1_000), (10, 300), (5, 100), (0, 40), (0, 0))
"""(closed files of each folder, characters of its texts): the first that fits is shown."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file, and its lines as they are shown; none where there is no room for them."""

    file: AgentFile
    text: str = ""


@dataclass(frozen=True, slots=True)
class DirectoryView:
    """A folder with its open files and the first of its other files."""

    folder: Folder
    open_files: tuple[OpenFile, ...] = ()
    closed_files: tuple[AgentFile, ...] = ()


def directories_xml(views: Sequence[DirectoryView], *, max_open: int) -> str:
    """Render the section; empty for no folders."""
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


def skeleton_tokens(
    views: Sequence[DirectoryView], *, max_open: int, most: int, counter: TokenCounter
) -> tuple[Sequence[DirectoryView], int]:
    """Cut the views to as many closed files, then folders, as fit into `most` tokens.

    Returns the views, and their tokens without the lines of open files.
    """

    def cut(folders: int, closed: int, chars: int) -> list[DirectoryView]:
        return [
            DirectoryView(
                _shorten(view.folder, chars),
                tuple(OpenFile(each.file) for each in view.open_files),
                view.closed_files[:closed],
            )
            for view in views[:folders]
        ]

    def tokens(folders: int, closed: int, chars: int) -> int:
        return counter.count(directories_xml(cut(folders, closed, chars), max_open=max_open))

    for closed, chars in _SKELETONS:
        if (size := tokens(len(views), closed, chars)) <= most:
            return cut(len(views), closed, chars), size
    folders = largest(len(views), lambda count: tokens(count, 0, 0) <= most)
    return cut(folders, 0, 0), tokens(folders, 0, 0)


def _shorten(folder: Folder, chars: int) -> Folder:
    """Return the folder with at most `chars` characters of its description and instructions."""

    def cut(text: str | None) -> str | None:
        return text if not text or len(text) <= chars else f"{text[:chars]}…" if chars else None

    return replace(folder, description=cut(folder.description), instructions=cut(folder.instructions))


def directories_section(system: str) -> str:
    """Return the section of a system text. It stands behind the memory blocks; nothing in it holds its closing tag."""
    start = system.find("<directories>\n<file_limits>", system.rfind("</memory_blocks>") + 1)
    end = system.find("</directories>", start)
    return system[start : end + len("</directories>")] if 0 <= start < end else ""


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
