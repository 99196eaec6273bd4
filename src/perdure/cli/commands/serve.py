"""`perdure serve` until a signal comes; `perdure ui` opens its dashboard."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.commands.run import command, flag, for_work, option

if for_work(__name__):
    import asyncio
    import webbrowser

    from perdure.app.telemetry import SHARED_FOLDER, exported_spans, forget_process
    from perdure.cli.session.agent_choice import choose_model, with_help
    from perdure.cli.views.terminal import standard_streams
    from perdure.cli.views.text import TextView
    from perdure.cli.views.view import Output, visible
    from perdure.core.errors import InvalidInput, ModelNotFound, PerdureError, StoreUnavailable
    from perdure.core.incoming.addresses import without_password
    from perdure.engine.ports import SystemClock
    from perdure.library.perdure import AsyncPerdure
    from perdure.scratch import scratch_folder
    from perdure.server.access.session import make_token
    from perdure.server.config import ServerConfig
    from perdure.server.log import log_to
    from perdure.server.serving.supervisor import KILL_S, WAIT_MAX_S, WAIT_S, Supervisor, WorkerLine
    from perdure.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

log = logging.getLogger(__name__)

EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})
"""The addresses of a server that listens on all networks of its machine: nobody calls it by them."""


def _fast_loop() -> Any:
    """The factory of uvloop's event loops where it is installed, imported only when a server starts."""
    from perdure.server.serving.serve import loop_factory

    return loop_factory()


@command("serve", json=False, loop=_fast_loop)
async def serve(
    view: Output,
    host: Annotated[str | None, option("Where to listen; by default on this machine only.", "ADDRESS")] = None,
    port: Annotated[int | None, option("By default 8283; 0: any free port.", min=0, max=65_535)] = None,
    workers: Annotated[int | None, option("How many processes serve; by default 1.", min=1, max=256)] = None,
    worker: Annotated[str | None, typer.Option("--worker", hidden=True)] = None,  # the inherited files of one of them
) -> int:
    """Serve the agents over HTTP, as letta-client speaks it. Ctrl-C stops."""
    config = ServerConfig.from_environment(host=host, port=port, workers=workers)
    try:
        files = None if worker is None else WorkerLine.parse(worker)
    except (ValueError, OSError) as error:
        raise InvalidInput("--worker is for processes that `perdure serve --workers` starts") from error
    return await _run(config, files)


@command("ui", json=False, loop=_fast_loop)
async def ui(
    view: Output,
    host: Annotated[str | None, option("Where the server listens.", "ADDRESS")] = None,
    port: Annotated[int | None, option("By default 8283.", min=0, max=65_535)] = None,
    browse: Annotated[bool, flag("--browser/--no-browser", "Open the page, or print its address.")] = True,
) -> int:
    """Open the dashboard in a browser, and serve it if nobody does."""
    config = ServerConfig.from_environment(host=host, port=port)
    address = f"http://{config.host}:{config.port}"
    status, about = await _ask(f"{address}/v1/health/") if config.port else (0, None)
    if status != 200 or not isinstance(about, dict) or "version" not in about:
        return await _run(config, browse=browse)
    link = dashboard_link(address, config)
    if browse:
        webbrowser.open(link)
    view.print(link)
    if config.api_key is None and (await _ask(f"{address}/v1/tags/"))[0] == 401:
        view.hint("Sign in with a key of the store: `perdure key create NAME --scope admin` makes one.")
    return 0


async def _ask(url: str) -> tuple[int, Any]:
    """The status and the JSON that a server on this machine answers; 0: none does."""
    import httpx

    try:
        async with httpx.AsyncClient(timeout=2, trust_env=False) as client:
            answer = await client.get(url)
        return answer.status_code, answer.json()
    except (httpx.HTTPError, ValueError):
        return 0, None


def dashboard_link(address: str, config: ServerConfig) -> str:
    """The address of the dashboard; where a key is needed, with a token that signs in once."""
    if config.api_key is None:
        return address
    return f"{address}/sign-in?token={make_token(config.api_key, SystemClock())}"


async def _run(config: ServerConfig, files: WorkerLine | None = None, *, browse: bool = False) -> int:
    """Serve until a signal comes, and return the exit code.

    Args:
        files: what a worker inherits from its supervisor.
        browse: open the dashboard in a browser.
    """
    out, err = standard_streams()
    secrets = {**os.environ, "PERDURE_API_KEY": config.api_key or ""}  # the key of `auto` is in a file
    with log_to(err, form=config.log, level=config.log_level, environment=secrets):
        view = (_LogView if config.log == "json" else TextView)(out, err, interactive=False)
        try:
            if files is None and config.workers > 1:
                await _supervise(config, view)
            else:
                with exported_spans(os.environ) as exports:
                    if exports and files is None:
                        view.hint("Sending spans to a collector, as the OTEL_ variables say.")
                    await _serve(share_of(config) if files else config, view, browse=browse, files=files)
        except PerdureError as error:
            view.clear_status()
            view.error(error)
            return 1
        if files is None:
            view.hint("Stopped; everything is kept.")
        return 0


def share_of(config: ServerConfig) -> ServerConfig:
    """The configuration of one of several workers, with its share of the connections."""
    most, of_address = (-(-count // config.workers) for count in (config.connections, config.connections_per_address))
    return replace(config, connections=most, connections_per_address=of_address)


async def _supervise(config: ServerConfig, view: TextView) -> None:
    """Serve in several processes until a signal comes. Raises: PerdureError."""
    from perdure.server.serving.serve import address_of, bind

    listener = bind(config)
    port, url = listener.getsockname()[1], address_of(listener)
    view.hint(f"Starting {config.workers} workers …")
    with listener, scratch_folder("metrics") as folder:  # each worker answers with the sums of all
        supervisor = Supervisor(
            listener,
            config.workers,
            grace_s=config.drain_s + config.shutdown_s + KILL_S,
            on_ready=lambda about: _show_ready(url, about, config, view, browse=False),
            command=(sys.executable, "-m", "perdure", "serve", "--host", config.host, "--port", str(port)),
            environment={**os.environ, "PERDURE_WORKERS": str(config.workers), SHARED_FOLDER: str(folder)},
            on_end=partial(forget_process, str(folder)),
        )
        await supervisor.run()


def _show_ready(url: str, about: Mapping[str, Any], config: ServerConfig, view: TextView, *, browse: bool) -> None:
    """Print where the server answers and how to go on. `about` has the default "model", its "reason" and a "note"."""
    from rich.text import Text

    if about.get("note"):
        view.note(about["note"])
    workers = f" · {config.workers} workers" if config.workers > 1 else ""
    line = (
        f"Perdure is serving on {url}{workers} · model {about['model']} ({about['reason']})"
        f" · next: Letta(base_url={url!r}) of letta-client, or `perdure doctor`; Ctrl-C stops"
    )
    view.print(Text(visible(line)))
    if config.host.strip("[]") in EVERY_ADDRESS and not config.allowed_hosts:
        view.hint(
            "Other machines are refused until PERDURE_ALLOWED_HOSTS has the names or addresses by which they call this"
            f" one, such as PERDURE_ALLOWED_HOSTS={socket.gethostname().lower()}"
        )
    link = dashboard_link(url, config)
    if config.api_key is None:
        view.hint(f"Dashboard: {link}")
    elif sys.stderr.isatty():
        view.hint(f"Dashboard: {link} (signs in once, for ten minutes)")
    else:  # whoever reads the log could sign in
        view.hint(f"Dashboard: {url} (`perdure ui` makes a link that signs in)")
    if browse:
        webbrowser.open(link)
    if config.key_file is not None:
        view.hint(f"It asks for the API key of {config.key_file}: `perdure key show` prints it.")


async def _serve(config: ServerConfig, view: TextView, *, browse: bool, files: WorkerLine | None = None) -> None:
    """Open the store and serve until a signal comes. `files`: as a worker. Raises: PerdureError."""
    from perdure.server.serving.serve import serve as run_server
    from perdure.ui.pages.routes import build_routes, refused_page

    settings = Settings.from_environment()
    if files is None:
        view.hint(f"Opening {without_password(settings.store_address)} …")
    async with await open_library(settings, files) as perdure:
        await choose_model(perdure, view)
        choice, models = perdure.app.choice, perdure.app.models
        view.show_status("asking for models…")
        await models.probe_local()
        if not models.listings.keys() >= {provider.provider for provider in models.endpoints}:
            await models.refresh()
        view.clear_status()
        about = {"model": choice.handle, "reason": choice.reason, "note": ""}
        if not models.takes(choice.handle):
            error = with_help(ModelNotFound(choice.handle, known=models.handles()), models)
            served = models.provider_of(choice.handle)
            if served is None or not served[0].local:
                raise error
            about["note"] = str(error)  # a local model server can start later

        def ready(url: str) -> None:
            """Show that the server is ready, or tell it to the supervisor."""
            signals.ignore()
            if files is None:
                _show_ready(url, about, config, view, browse=browse)
            else:
                files.tell_ready(about)

        with StopSignals() as signals:
            orphaned = None if files is None else asyncio.create_task(_stop_without_supervisor(files))
            await run_server(
                perdure,
                config,
                pages=build_routes(),
                refused_page=refused_page,
                listener=None if files is None else files.listener,
                shares=None if files is None else files.shares,
                on_ready=ready,
            )
            if orphaned is not None:
                orphaned.cancel()


async def open_library(settings: Settings, files: WorkerLine | None) -> AsyncPerdure:
    """Open the store. A worker that replaces a dead one waits for the database, as its own end would stop the others.
    Raises: PerdureError."""
    pause_s, is_logged = WAIT_S, False
    while True:
        try:
            return await AsyncPerdure.open(settings=settings)
        except StoreUnavailable as error:
            if files is None or not files.is_replacement:
                raise
            if not is_logged:
                log.warning("a new worker waits for its store: %s", error)
                is_logged = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await files.wait_for_end()
                    raise
        pause_s = min(2 * pause_s, WAIT_MAX_S)


async def _stop_without_supervisor(files: WorkerLine) -> None:
    """Stop this worker when its supervisor is gone."""
    await files.wait_for_end()
    os.kill(os.getpid(), signal.SIGTERM)


if for_work(__name__):

    class _LogView(TextView):
        """Writes all that is shown as log records, so that a parser of the log finds no other lines."""

        def print(self, *parts: RenderableType) -> None:
            for part in parts:
                log.info("%s", part)

        def hint(self, text: str) -> None:
            log.info("%s", text)

        def note(self, text: str) -> None:
            log.warning("%s", text)

        def error(self, error: PerdureError) -> None:
            log.error("%s", error)


class StopSignals:
    """SIGINT and SIGTERM while the server does not handle them itself. Before `ignore` they do what they did, so that a
    start can be stopped; then they do nothing, so that the store is closed once the server has ended."""

    def __enter__(self) -> StopSignals:
        self._is_ignored = False
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore both from now on."""
        self._is_ignored = True

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self._is_ignored:
            signal.signal(number, self._before[signal.Signals(number)])
            signal.raise_signal(number)
