"""The tools that read an agent's files: `open_files`, `grep_files`, `semantic_search_files`.

Every result names files and lines. Only `open_files` changes something: which files are open, and their lines in view.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING, Any

from perdure.context.sections.expand import Budget
from perdure.core.errors import ToolError
from perdure.core.ids import AgentId
from perdure.core.passages import Passage
from perdure.core.sources import Source
from perdure.core.specs import ToolOutcome
from perdure.core.text.forms import name_form
from perdure.domain.conversations.matches import clip_line
from perdure.domain.conversations.patterns import Match, Pattern, PatternSlow
from perdure.domain.provenance.context import sources_of_passages
from perdure.domain.tools.calls import MemoryCall
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.units import file_source
from perdure.features.files.values import AgentFile, Folder
from perdure.features.files.views import close_oldest, limits_of, open_view, page_label, read_lines, read_text
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from perdure.engine.search.tools import SearchCall

MOST_REQUESTS = 20
PAGE_MATCHES = 20
CONTEXT_LINES, CONTEXT_LINES_MAX = 1, 10
LINE_CHARS = 200
PASSAGE_CHARS = 2_000
INCLUDE_CHARS = 200
FILES_A_PAGE = 100
NAMES_COMPARED, NAMES_SHOWN = 500, 8
MOST_PASSAGES = 50

_GREP_ENTRY = re.compile(r"^(\S[^\n]*):\d+$", re.MULTILINE)
"""The line of an answer of `grep_files` that names a file."""


def open_files(
    tx: Tx, call: MemoryCall, file_requests: Sequence[Mapping[str, Any]], close_all_others: bool = False
) -> ToolOutcome:
    """Open files and return their requested lines, as many as fit. Raises: ToolError."""
    if not file_requests and not close_all_others:
        raise ToolError("file_requests is empty: name the files to read, or give close_all_others to close all")
    if len(file_requests) > MOST_REQUESTS:
        raise ToolError(f"{len(file_requests)} files at once are too many: ask for at most {MOST_REQUESTS}")
    agent_id = call.agent.id
    limits = limits_of(call.agent, call.window_tokens)
    if len(file_requests) > limits.max_open:
        raise ToolError(f"{len(file_requests)} files can't be open at once: the limit is {limits.max_open}")
    requests = [(find_file(tx, agent_id, request["file_name"]), *_line_range(request)) for request in file_requests]
    closed: list[AgentFile] = []
    if close_all_others:
        ids = {file.file.id for file, _, _ in requests}
        closed = [file for file in tx.of(AgentFiles).list_open(agent_id) if file.file.id not in ids]
        for file in closed:
            tx.of(AgentFiles).close(agent_id, file.file.id)
    parts: list[str] = []
    versions: dict[str, int | None] = {}
    tokens_left = call.result_tokens
    for index, (file, first, last) in enumerate(requests):
        lines = file.file.line_count
        if first > max(1, lines):
            raise ToolError(f"{file.path} has {lines} lines: offset={first - 1} is behind them")
        share = tokens_left // (len(requests) - index) - 40  # what the headings take
        opened, view = open_view(
            tx, agent_id, file, limits, first=first, last=last, tokens=share, counter=call.counter, at=call.now
        )
        versions[file.file.id] = opened.version
        pages = page_label(tx.of(Files).page_starts(file.file.id), view.first_line, view.last_line)
        text = [f"{file.path}: lines {view.first_line}-{view.last_line} of {lines}{pages}", view.text]
        if not lines:
            text = [f"{file.path}: the file has no text"]
        elif view.cut:
            text.append(f"[line {view.last_line} is longer than fits; grep_files finds words in it]")
        if view.lines_left and (last is None or view.last_line < min(last, lines)):
            text.append(f"[{view.lines_left} more lines: open_files with offset={view.last_line}]")
        parts.append("\n".join(filter(None, text)))
        tokens_left -= call.counter.count(parts[-1])
    closed += close_oldest(tx, agent_id, limits)
    if closed:
        parts.append(f"[closed: {', '.join(file.path for file in closed)}]")
        versions.update(dict.fromkeys([file.file.id for file in closed]))
    sources = tuple(file_source(tx, file_id) for file_id, version in versions.items() if version is not None)
    return ToolOutcome(text="\n\n".join(parts) or "[no file was open]", versions=versions, sources=sources)


def read_whole(tx: Tx, agent_id: AgentId, name: str, most_chars: int) -> tuple[str, str]:
    """Return the path and text of an agent's file, at most one character more than `most_chars`. Raises: ToolError."""
    file = find_file(tx, agent_id, name)
    return file.path, read_text(tx, file.file.id, max_chars=most_chars + 1)


def _line_range(request: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the first and last line that a request wants; None: the end. Raises: ToolError."""
    offset, length = request.get("offset") or 0, request.get("length")
    if offset < 0 or (length is not None and length < 1):
        raise ToolError(f"offset={offset}, length={length} can't be: pass over 0 lines or more, and show 1 or more")
    return offset + 1, None if length is None else offset + length


def _names_like(name: str, paths: Sequence[str]) -> str:
    """Return a hint that lists the paths whose file has a similar name, else the first paths."""
    if not paths:
        return "your folders have no files"
    from difflib import get_close_matches

    ends: dict[str, list[str]] = {}
    for path in paths:
        ends.setdefault(path.rpartition("/")[2].lower(), []).append(path)
    near = get_close_matches(name.rpartition("/")[2].lower()[:200], ends, n=3, cutoff=0.7)
    if near:
        return f"is it {' or '.join([path for end in near for path in ends[end]][:4])}?"
    more = " and others; semantic_search_files finds what they say" if len(paths) > NAMES_SHOWN else ""
    return f"there are {', '.join(paths[:NAMES_SHOWN])}{more}"


def find_file(tx: Tx, agent_id: AgentId, name: str) -> AgentFile:
    """Return the agent's file that a model's name stands for. Raises: ToolError: none, several, or not ready."""
    path = name.strip().strip("\"'`").removeprefix("./").lstrip("/")
    matches = tx.of(AgentFiles).find_by_path(agent_id, path)
    exact = [file for file in matches if path == file.path] or [file for file in matches if path == file.file.name]
    candidates = exact or list(matches)
    if len(candidates) > 1:
        raise ToolError(f"{name[:80]!r} may be {', '.join(file.path for file in candidates[:8])}: give the whole path")
    if not candidates:
        paths = [file.path for file in tx.of(AgentFiles).list(agent_id, limit=NAMES_COMPARED)]
        raise ToolError(f"file {name[:80]!r} not found: {_names_like(path, paths)}")
    (file,) = candidates
    if file.file.status == "error":
        raise ToolError(f"{file.path} can't be read: {file.file.problem}")
    if file.file.status in ("pending", "parsing"):
        raise ToolError(f"{file.path} is not ready yet: it is being read, try again a little later")
    return file


# -- grep --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LineHit:
    """A matching line of a file."""

    file: AgentFile
    match: Match


def grep(
    tx: Tx,
    agent_id: AgentId,
    budget: Budget,
    pattern: str,
    include: str | None = None,
    context_lines: int = CONTEXT_LINES,
    offset: int | None = None,
) -> str:
    """Return a page of lines that match, behind the first `offset` ones, with lines around each. Raises: ToolError."""
    if not 0 <= context_lines <= CONTEXT_LINES_MAX:
        raise ToolError(f"context_lines={context_lines} can't be used: give 0 to {CONTEXT_LINES_MAX}")
    skip = offset or 0
    if skip < 0:
        raise ToolError(f"offset={skip} can't be used: give how many matches to pass over, 0 or more")
    scan = _scan(tx, agent_id, Pattern(pattern), _compile_include(include), most=skip + PAGE_MATCHES + 1)
    if not scan.file_count:
        why = f"no file's path matches include={include!r:.80}" if include else "your folders have no text yet"
        return budget.cut(f"No match: {why}.")
    entries = [_entry(tx, hit, context_lines) for hit in scan.hits[skip : skip + PAGE_MATCHES]]

    def end(count: int) -> str:
        """Return the last line of the answer, after `count` matches."""
        if skip + count < len(scan.hits):
            return f"[more matches: grep_files with offset={skip + count}]"
        if scan.timeout_path:
            return f"[the time was up in {scan.timeout_path}: use a simpler pattern, or include to search fewer files]"
        files = f"{scan.file_count} file{'' if scan.file_count == 1 else 's'} searched"
        return f"[{files}]" if entries else f"[no match; {files}]"

    for count in range(len(entries), 0, -1):
        if budget.fits(answer := "\n".join((*entries[:count], end(count)))):
            return answer
    return budget.cut("\n".join((*entries[:1], end(len(entries[:1])))))


@dataclass(frozen=True, slots=True)
class _FileScan:
    """The hits and how many files were searched; `timeout_path`: the file in which the time was up."""

    hits: Sequence[_LineHit]
    file_count: int
    timeout_path: str = ""


def _scan(tx: Tx, agent_id: AgentId, search: Pattern, include: re.Pattern[str] | None, *, most: int) -> _FileScan:
    """Find the first `most` matching lines. Raises: ToolError: the pattern takes too long in the first file."""
    hits: list[_LineHit] = []
    count = 0
    for file in _readable(tx, agent_id):
        if include is not None and not (include.fullmatch(file.path) or include.fullmatch(file.file.name)):
            continue
        count += 1
        try:
            for match in _matches(tx, file, search):
                hits.append(_LineHit(file, match))
                if len(hits) >= most:
                    return _FileScan(hits, count)
        except PatternSlow:
            if count == 1 and not hits:
                raise ToolError(
                    f"the pattern takes too long in {file.path}: the time limit was reached; use a simpler one"
                ) from None
            return _FileScan(hits, count, file.path)
    return _FileScan(hits, count)


def _entry(tx: Tx, hit: _LineHit, context_lines: int) -> str:
    """Render `docs/plan.md:17`, then the line (`17> text`) and those around it (`18| text`)."""
    line = hit.match.line
    lines = read_lines(tx, hit.file.file.id, max(1, line - context_lines), line + context_lines, max_chars=200_000)
    entry = [f"{hit.file.path}:{line}"]
    for one in lines:
        if one.number == line:
            entry.append(f"{one.number}> {clip_line(one.text, hit.match, LINE_CHARS)}")
        else:
            entry.append(f"{one.number}| {clip_line(one.text, Match(one.number, 0, 0), LINE_CHARS)}")
    return "\n".join(entry)


def _matches(tx: Tx, file: AgentFile, search: Pattern) -> Iterator[Match]:
    """Yield the first match of each line of a file that has one. Raises: PatternSlow."""
    after, last = -1, 0
    while parts := tx.of(Files).parts(file.file.id, after_seq=after, limit=4):
        for part in parts:
            if search.over:
                raise PatternSlow
            for match in search.matches(part.text, first_line=part.first_line):
                at = match.start + part.first_char if match.line == part.first_line else match.start
                if match.line != last:  # a line that fills several parts counts once
                    yield Match(match.line, at, at + match.end - match.start)
                last = match.line
        after = parts[-1].seq


def _readable(tx: Tx, agent_id: AgentId) -> Iterator[AgentFile]:
    """Yield the files whose text is stored, in the order of their folders."""
    place: tuple[int, int] | None = None
    numbers = {folder.id: folder.number for folder in tx.of(Folders).list_by_agent(agent_id)}
    while page := tx.of(AgentFiles).list(agent_id, above=place, limit=FILES_A_PAGE):
        yield from (file for file in page if file.file.status in ("embedding", "completed"))
        place = (numbers[page[-1].file.folder_id], page[-1].file.number)


def _compile_include(include: str | None) -> re.Pattern[str] | None:
    """Compile a glob of paths; None: all files. Raises: ToolError."""
    if not include:
        return None
    if len(include) > INCLUDE_CHARS:
        raise ToolError(f"include has {len(include)} characters, the limit is {INCLUDE_CHARS}: write a shorter one")
    # Several stars in a row say no more than one, and take much longer.
    return re.compile(translate(re.sub(r"\*+", "*", name_form(include.strip()))), re.IGNORECASE)


async def grep_files(call: SearchCall, **arguments: Any) -> ToolOutcome:
    """Search the lines of the agent's files by a pattern. Raises: ToolError."""
    text = await call.store.read(grep, call.run.key.agent_id, call.budget, **arguments)
    return ToolOutcome(text=text, sources=sources_of_grep(text))


def sources_of_grep(text: str) -> tuple[Source, ...]:
    """Return the files that an answer of `grep_files` shows."""
    return tuple(dict.fromkeys(Source.of("file", path) for path in _GREP_ENTRY.findall(text)))


# -- search ------------------------------------------------------------------------------------------------------------


async def semantic_search_files(call: SearchCall, query: str, limit: int = 5) -> ToolOutcome:
    """Search the passages of the agent's files. Raises: ToolError."""
    if not query.strip():
        raise ToolError("the query is empty: say what to look for")
    folders = await call.store.read(lambda tx: tx.of(Folders).list_by_agent(call.run.key.agent_id))
    archives, limit = [folder.archive_id for folder in folders], max(1, min(limit, MOST_PASSAGES))
    hits = await call.search.passages(archives, query, limit=limit, timezone=call.timezone, skip_deleted=True)
    passages = tuple(hit.passage for hit in hits)
    sources = await call.store.read(sources_of_passages, passages)
    return ToolOutcome(text=render_passages(passages, folders, call.budget), passages=passages, sources=sources)


def render_passages(passages: Sequence[Passage], folders: Sequence[Folder], budget: Budget) -> str:
    """Render passages of files for a model, each with its file and lines, as many as fit."""
    names: dict[str, str] = {folder.id: folder.name for folder in folders}
    entries: list[str] = []
    for passage in passages:
        source = passage.source
        page = f", page {source['page']}" if source.get("page") else ""
        path = f"{names.get(source.get('folder_id', ''), '')}/{source.get('file_name')}"
        place = f"{path}: lines {source.get('first_line')}-{source.get('last_line')}{page}"
        text = passage.text if len(passage.text) <= PASSAGE_CHARS else f"{passage.text[:PASSAGE_CHARS]}…"
        entries.append(f"{place}\n{text}")
    if not entries:
        return budget.cut("No passage found. grep_files looks for exact words.")
    for count in range(len(entries), 0, -1):
        if budget.fits(answer := "\n\n".join(entries[:count])):
            return answer
    return budget.cut(entries[0])
