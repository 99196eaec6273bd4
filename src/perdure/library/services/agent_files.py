"""The files of an agent's folders: which are open, and what of each is in its view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.files import AgentFile
from perdure.core.ids import AgentId, FileId, is_id
from perdure.domain.files.views import FileLimits, close_oldest, limits_of, open_view, read_view
from perdure.library.checks import check_limit, check_text
from perdure.library.paging import Page
from perdure.library.services.files import check_lines
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilePage:
    """A page of an agent's files, each with the text that is in view of it, if it is open.

    `has_more`: there are others behind the page, in the direction in which it was read.
    """

    files: Sequence[tuple[AgentFile, str | None]]
    has_more: bool


class AgentFileService:
    """What can be done with the files of an agent. A file is named by its id, or by a path such as `docs/plan.md`."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports

    async def list(self, agent_id: AgentId, *, is_open: bool | None, limit: int) -> Sequence[AgentFile]:
        """The first files of the agent's folders: all, the open ones, or the others. Raises: InvalidInput."""
        check_limit(limit)

        def load(tx: Tx) -> Sequence[AgentFile]:
            tx.agents.model(agent_id)
            return tx.agent_files.list(agent_id, is_open=is_open, limit=limit)

        return await self._ports.store.read(load)

    async def load_page(self, agent_id: AgentId, page: Page, *, is_open: bool | None = None) -> AgentFilePage:
        """A page of the files of the agent's folders. Raises: NotFound: the agent, or the file that it begins at."""
        one_more = replace(page, limit=page.limit + 1)

        def load(tx: Tx) -> AgentFilePage:
            limits = self._limits(tx, agent_id)
            numbers = {folder.id: folder.number for folder in tx.folders.of_agent(agent_id)}

            def place(file_id: str) -> tuple[int, int]:
                file = tx.agent_files.get(agent_id, FileId(file_id)).file
                return numbers[file.folder_id], file.number

            found = one_more.load(partial(tx.agent_files.list, agent_id, is_open=is_open), place)
            shown = found[-page.limit :] if page.from_end else found[: page.limit]
            files = [(file, self._text_in_view(tx, file, limits) if file.is_open else None) for file in shown]
            return AgentFilePage(files=files, has_more=len(found) > page.limit)

        return await self._ports.store.read(load)

    async def open(
        self, agent_id: AgentId, name_or_id: str, *, first_line: int = 1, last_line: int | None = None
    ) -> Sequence[AgentFile]:
        """Have lines of a file in the agent's view, from its next message on; the files that were closed for it.

        Raises: NotFound; InvalidInput: its text is not there, or there are no such lines.
        """
        check_text("a file's path or id", name_or_id)
        check_lines(first_line, last_line)
        ports = self._ports

        def open_lines(tx: Tx) -> Sequence[AgentFile]:
            file, limits = _find(tx, agent_id, name_or_id), self._limits(tx, agent_id)
            if file.file.status not in ("completed", "embedding"):
                problem = file.file.problem or "its text is not made yet"
                raise InvalidInput(f"{file.path} can't be opened: {problem}")
            if not 1 <= first_line <= max(1, file.file.line_count):
                raise InvalidInput(f"{file.path} has lines 1 to {file.file.line_count}: there is no line {first_line}")
            open_view(
                tx,
                agent_id,
                file,
                limits,
                first=first_line,
                last=last_line,
                tokens=limits.section_tokens,
                counter=ports.counter,
                at=ports.clock.now(),
            )
            return close_oldest(tx, agent_id, limits)

        return await ports.store.write(open_lines)

    async def close(self, agent_id: AgentId, name_or_id: str) -> None:
        """Take a file out of the agent's view. Raises: NotFound."""
        check_text("a file's path or id", name_or_id)
        await self._ports.store.write(
            lambda tx: tx.agent_files.close(agent_id, _find(tx, agent_id, name_or_id).file.id)
        )

    async def close_all(self, agent_id: AgentId) -> Sequence[AgentFile]:
        """Take all files out of the agent's view; which they were. Raises: NotFound."""

        def close(tx: Tx) -> Sequence[AgentFile]:
            tx.agents.model(agent_id)
            open_files = tx.agent_files.opened(agent_id)
            for file in open_files:
                tx.agent_files.close(agent_id, file.file.id)
            return open_files

        return await self._ports.store.write(close)

    def _limits(self, tx: Tx, agent_id: AgentId) -> FileLimits:
        agent = tx.agents.get(agent_id)
        return limits_of(agent, self._ports.inputs().window(agent)[0])

    def _text_in_view(self, tx: Tx, file: AgentFile, limits: FileLimits) -> str:
        view = read_view(
            tx,
            file.file,
            file.first_line,
            file.last_line,
            max_chars=limits.view_chars,
            tokens=limits.section_tokens,
            counter=self._ports.counter,
        )
        return view.whole


def _find(tx: Tx, agent_id: AgentId, name_or_id: str) -> AgentFile:
    """The file of this id or path. Raises: NotFound, naming those whose names are alike."""
    tx.agents.model(agent_id)
    if is_id("file", name_or_id):
        return tx.agent_files.get(agent_id, FileId(name_or_id))
    found = tx.agent_files.named(agent_id, name_or_id)
    if not found or (len(found) > 1 and name_or_id not in (found[0].path, found[0].file.name)):
        known = ", ".join(file.path for file in found[:8])
        hint = f"it may be {known}" if known else "it is in none of the agent's folders"
        raise NotFound("file", name_or_id, hint=hint)
    return found[0]
