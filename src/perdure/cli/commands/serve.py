"""`perdure serve`, until a signal comes, and `perdure key`, which prints the API key of the server."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.cli.chat.agent_choice import choose_model
from perdure.cli.chat.models import with_help
from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.views.fold import visible
from perdure.cli.views.text import TextView
from perdure.cli.views.view import View
from perdure.core.errors import InvalidInput, ModelNotFound, PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.key import key_path, load_key
from perdure.server.log import log_to
from perdure.settings import Settings

log = logging.getLogger(__name__)


async def key(view: View) -> None:
    """Print the key and nothing else."""
    api_key = ServerConfig.from_environment().api_key or load_key(key_path(Settings.from_environment()))
    if api_key is None:
        raise InvalidInput("no API key is set: start the server with PERDURE_API_KEY=auto, which makes one")
    view.print(api_key)


async def serve(*, host: str | None, port: int | None) -> int:
    """Serve until a signal comes, and return the exit code."""
    out, err = standard_streams()
    terminal = Terminal(out, err, interactive=False)
    try:
        config = ServerConfig.from_environment(host=host, port=port)
    except PerdureError as error:
        TextView(terminal).error(error)
        return 1
    secrets = {**os.environ, "PERDURE_API_KEY": config.api_key or ""}  # the key of `auto` is in a file
    with log_to(err, form=config.log, level=config.log_level, environment=secrets):
        return await _serve(config, terminal, _LogView(terminal) if config.log == "json" else TextView(terminal))


async def _serve(config: ServerConfig, terminal: Terminal, view: TextView) -> int:
    """Open the store and serve until a signal comes; return the exit code."""
    from rich.text import Text

    from perdure.server.serve import serve as run_server

    try:
        settings = Settings.from_environment()
        view.hint(f"Opening {settings.store_path} …")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            await choose_model(perdure, view)
            choice, models = perdure.app.choice, perdure.app.models
            view.show_status("asking for models…")
            await models.probe_local()
            if not models.listings.keys() >= {provider.provider for provider in models.endpoints}:
                await models.refresh()
            view.clear_status()
            if not models.takes(choice.handle):
                error = with_help(ModelNotFound(choice.handle, known=models.handles()), models)
                served = models.provider_of(choice.handle)
                if served is None or not served[0].local:
                    raise error
                view.note(str(error))  # a local model server can start later

            def ready(url: str) -> None:
                """Print where the server answers."""
                line = (
                    f"Perdure is serving on {url} · model {choice.handle} ({choice.reason})"
                    f" · next: Letta(base_url={url!r}) of letta-client, or `perdure doctor`; Ctrl-C stops"
                )
                terminal.show(Text(visible(line)))
                if config.key_file is not None:
                    view.hint(f"It asks for the API key of {config.key_file}: `perdure key` prints it.")

            with _ignore_stop_signals():
                await run_server(perdure, config, on_ready=ready)
    except PerdureError as error:
        view.clear_status()
        view.error(error)
        return 1
    view.hint("Stopped; everything is kept.")
    return 0


class _LogView(TextView):
    """Hints, notes and errors as log records, so that a parser of the log finds no other lines."""

    def hint(self, text: str) -> None:
        log.info("%s", text)

    def note(self, text: str) -> None:
        log.warning("%s", text)

    def error(self, error: PerdureError) -> None:
        log.error("%s", error)


@contextmanager
def _ignore_stop_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM outside the server, so that a signal stops the server and the store still closes.

    While it runs, the server handles these signals itself. After it has stopped, it raises the signal again; by then
    the handler set here is back, and it does nothing.
    """
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
