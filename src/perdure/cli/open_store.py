"""A command that opens the store, does one thing, and leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.views.json import JsonView
from perdure.cli.views.text import TextView
from perdure.cli.views.view import View
from perdure.core.errors import PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = ["Shown", "with_store"]


class Shown:
    """Where a command shows what came of it: `terminal` for people, `json` in its place."""

    def __init__(self, *, as_json: bool) -> None:
        self._out, self._err = standard_streams()
        self.terminal = Terminal(self._out, self._err, interactive=False)
        self.as_json = as_json
        self.view: View = JsonView(self._out) if as_json else TextView(self.terminal)
        self.watched = self._err.isatty() and not as_json

    def print(self, line: str) -> None:
        """A line of the result, for programs."""
        print(line, file=self._out)

    def json(self, value: object) -> None:
        """The result as one line of JSON."""
        from perdure.cli.views.json import to_line

        self.print(to_line(value, self._out))


async def with_store(
    shown: Shown, work: Callable[[AsyncPerdure], Awaitable[int]], *, empty: str | PerdureError, empty_json: object = ()
) -> int:
    """What `work` returns, given the open store of the data folder; a folder that is not there is left so.

    Args:
        empty: what a person is told where there is no store yet; an error, where something there was to be changed.
        empty_json: what a program is told in its place.
    """
    try:
        settings = Settings.from_environment()
        if not settings.store_path.exists():
            if isinstance(empty, PerdureError):
                raise empty
            if shown.as_json:
                shown.json(empty_json)
            else:
                shown.view.hint(empty)
            return 0
        async with await AsyncPerdure.open(settings=settings) as perdure:
            return await work(perdure)
    except PerdureError as error:
        shown.view.error(error)
        return 1
