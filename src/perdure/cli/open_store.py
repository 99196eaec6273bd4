"""A command that opens the store, does one thing, and exits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.views.json import JsonView, to_line
from perdure.cli.views.text import TextView
from perdure.cli.views.view import View
from perdure.core.errors import PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings


class Output:
    """Where a command prints: `view` and `terminal` for people, `json` for programs."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._out, err = standard_streams()
        self.terminal = Terminal(self._out, err, interactive=False)
        self.as_json = as_json
        self.view: View = JsonView(self._out) if as_json else TextView(self.terminal)

    def print(self, line: str) -> None:
        """Print one line of the result on stdout."""
        print(line, file=self._out)

    def write_bytes(self, data: bytes) -> None:
        """Write data to stdout byte for byte, lone surrogates included, which no text stream takes."""
        self._out.flush()
        if (buffer := getattr(self._out, "buffer", None)) is not None:
            buffer.write(data)
            buffer.flush()
        else:
            self._out.write(data.decode("utf-8", "replace"))

    def json(self, value: object) -> None:
        """Print the result as one line of JSON."""
        self.print(to_line(value, self._out))


async def with_store(
    output: Output,
    work: Callable[[AsyncPerdure], Awaitable[int]],
    *,
    check: Callable[[Settings], None] | None = None,
    empty: str | PerdureError | None = None,
    empty_json: object = (),
) -> int:
    """Run `work` with the open store of the data folder, show errors, and return the exit code.

    Args:
        check: runs before the store is opened; it may raise a PerdureError.
        empty: the hint or the error where there is no store yet; None makes the store.
        empty_json: what --json prints in place of the hint.
    """
    try:
        settings = Settings.from_environment()
        if check is not None:
            check(settings)
        if empty is not None and not settings.store_path.exists():
            if isinstance(empty, PerdureError):
                raise empty
            if output.as_json:
                output.json(empty_json)
            else:
                output.view.hint(empty)
            return 0
        async with await AsyncPerdure.open(settings=settings) as perdure:
            return await work(perdure)
    except PerdureError as error:
        output.view.error(error)
        return 1
