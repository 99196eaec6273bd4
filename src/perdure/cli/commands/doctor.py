"""`perdure doctor`: what is set up, what works, and what to do where something does not."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import platform
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from perdure.cli.commands.run import command, for_work

if for_work(__name__):
    import asyncio

    from perdure import app
    from perdure.cli.commands.store_checks import UPGRADED, Check, checks_view, store_checks
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, plural, price, visible
    from perdure.core.errors import InvalidInput, PerdureError
    from perdure.core.hooks import HOOK_POINTS, Hook
    from perdure.core.text.pip_line import pip_line
    from perdure.domain.agents.profile import SMALL_WINDOW_TOKENS, is_small
    from perdure.settings import Settings

if TYPE_CHECKING:
    from perdure.server.config import ServerConfig


NO_HOOK = "There are no hooks. A file hooks.toml in the data folder names commands; docs/hooks.md shows how."
ASK_TIMEOUT_S = 2.0
EMBED_TIMEOUT_S = 10.0
MODELS_MAX = 3
PORT_MAX = 65_535
READ_OUTSIDE = "files and web pages are read in a plain process, with limits on its time and memory only"
FIRST_PROMPT_TOKENS = {True: 400, False: 2_300}
"""The first prompt of a new agent, by whether its model is a small one."""
_WINDOW_FIXES = {
    "ollama": "start Ollama with OLLAMA_CONTEXT_LENGTH=32768: it cuts what is longer without telling",
    "llamacpp": "start the server with a larger `--ctx-size`, as far as the memory allows",
}


@command("hook list")
async def list_hooks(view: Output) -> None:
    """List the hooks of this machine, in the order in which they are called."""
    shapes, lines = [], []
    for hook in app.configured_hooks(Settings.from_environment()):
        info, problem = hook.info, _problem(hook)
        points = [point for point in HOOK_POINTS if point in info.points]  # in the order of a run
        shape = fields(info, "name", "tools", "source", "timeout_s", "if_it_fails")
        shapes.append(shape | {"on": points, "problem": problem or None})
        tools = f" of {', '.join(info.tools)}" if info.tools else ""
        fails = "blocks" if info.if_it_fails == "block" else "is passed over"
        lines.append(f"{visible(info.name)}  {', '.join(points)}{visible(tools)}")
        lines.append(f"    from {visible(info.source)}; up to {info.timeout_s:g} s, and {fails} if it fails")
        if problem:
            lines.append(f"    {visible(problem)}: it fails each time")
    view.show(shapes, *lines)
    if not shapes:
        view.hint(NO_HOOK)


def hooks_check(settings: Settings) -> Check:
    """Whether the command of each hook can run."""
    try:
        hooks = app.configured_hooks(settings)
    except PerdureError as error:
        return Check("hooks", "broken", str(error), "correct it; PERDURE_HOOKS=none calls no hook at all")
    for hook in hooks:
        if problem := _problem(hook):
            return Check("hooks", "broken", f"hook {hook.info.name!r}: {problem}", "correct its command")
    sources = ", ".join(dict.fromkeys(hook.info.source for hook in hooks))
    names = ", ".join(hook.info.name for hook in hooks)
    return Check("hooks", "ok", f"{len(hooks)} from {sources}: {names}" if hooks else "none")


def _problem(hook: Hook) -> str:
    """Why a command hook can't run; empty for functions."""
    return str(getattr(hook, "problem", ""))


@command("doctor")
async def doctor(view: Output) -> int:
    """Check models, data and ports, and say what helps. Exit code 1: something is broken."""
    checks = [check async for check in examine(progress=view.show_status)]
    view.clear_status()
    broken = any(check.status == "broken" for check in checks)
    view.show({"ok": not broken, "checks": [dataclasses.asdict(check) for check in checks]}, *checks_view(checks))
    return int(broken)


async def examine(*, progress: Callable[[str], None], port: int | None = None) -> AsyncIterator[Check]:
    """Every check, in the order of the output. No check contains a key.

    Args:
        progress: shows what is being checked.
        port: the port of the server; by default where `perdure serve` would listen.
    """
    yield _versions_check()
    settings = Settings()
    try:
        settings = Settings.from_environment()
    except PerdureError as error:
        yield Check("settings", "broken", str(error), "correct or unset the variable")
    for check in _misspelled_checks(os.environ):
        yield check
    progress("reading the store…")
    stored = await asyncio.to_thread(lambda: list(store_checks(settings)))
    for check in stored:
        yield check
    own = app.own_models(settings)
    registry = app.model_registry(own=own)
    progress("asking providers for models…")
    async with _traits_of_store(settings, registry, stored):
        await registry.refresh()
        await registry.probe_local()
        for check in _provider_checks(registry):
            yield check
        async for check in _model_checks(settings.model, registry, progress):
            yield check
    await registry.close()
    if own is not None:
        await own.close()
    progress("looking at the port…")
    from perdure.server.config import ServerConfig

    try:
        config = ServerConfig.from_environment(create_key=False)
    except InvalidInput as error:
        yield Check("server", "broken", f"`perdure serve` would not start: {error}", "correct that variable")
    else:
        yield _api_key_check(config)
        yield await _port_check(config.port if port is None else port)
    progress("trying the sandbox…")
    yield await _sandbox_check(settings)
    progress("embedding a word…")
    yield await _embeddings_check(settings.embedding)
    yield _files_check()
    engine, variables = app.web_search_engine(settings)
    off = f"off: set {' or '.join(variables)}; fetch_webpage works without"
    yield Check("web search", "ok" if engine else "note", engine or off)
    yield hooks_check(settings)


@contextlib.asynccontextmanager
async def _traits_of_store(
    settings: Settings, registry: app.ModelRegistry, checks: Sequence[Check]
) -> AsyncIterator[None]:
    """Inside the context, give the registry the traits of models that the store knows, and store those that it learns.
    A store that `checks` report as read-only or to be upgraded is not touched."""
    can_be_written = any((check.name, check.status) == ("writing", "ok") for check in checks)
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(PerdureError):
            if can_be_written and not any(UPGRADED in check.text for check in checks):
                store = await app.open_store(settings.store_address, at=datetime.now(UTC))
                stack.push_async_callback(store.close)
                traits = app.StoredTraits(store, registry.learned)
                await traits.start()
                stack.push_async_callback(traits.close)
        yield


def _versions_check() -> Check:
    """The versions of Perdure, Python, SQLite and letta-client."""
    from importlib.metadata import PackageNotFoundError, version

    python = f"Python {platform.python_version()} ({sys.executable})"
    names = {"Perdure": "perdure", python: "", f"SQLite {sqlite3.sqlite_version}": "", "letta-client": "letta-client"}
    found = []
    for name, package in names.items():
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(package)}" if package else name)
    return Check("versions", "ok", ", ".join(found))


def _misspelled_checks(environment: Iterable[str]) -> Iterator[Check]:
    """Variables that no setting has, and whose name is nearly that of one."""
    from perdure.server.config import ServerConfig

    known = [f"PERDURE_{field.name.upper()}" for kind in (Settings, ServerConfig) for field in dataclasses.fields(kind)]
    for name in sorted({name for name in environment if name.startswith("PERDURE_")}.difference(known)):
        if near := difflib.get_close_matches(name, known, n=1, cutoff=0.9):
            yield Check("settings", "note", f"{name} is no setting", f"did you mean {near[0]}?")


def _provider_checks(registry: app.ModelRegistry) -> Iterator[Check]:
    """Whether each provider answers, and with how many models."""
    for provider in registry.endpoints:
        listing = registry.listings[provider.provider]
        source = f"{provider.provider} (from {provider.source})"
        if listing.problem:
            fix = f"correct {provider.source}, or unset it" if "_" in provider.source else ""
            yield Check("provider", "broken", f"{source}: {listing.problem}", fix)
            continue
        models = plural(len(listing.models), "model")
        if listing.models:
            models += f", such as {', '.join(listing.models[:MODELS_MAX])}"
        key = "key set, not shown" if provider.has_key else "no key"
        yield Check("provider", "ok", f"{source} at {provider.address}, {key}: {models}")
    if not registry.endpoints:
        names = ", ".join(
            provider.keys[0] for provider in app.PROVIDERS.values() if provider.keys and not provider.local
        )
        yield Check(
            "provider",
            "note",
            "none found, neither in the environment nor on this machine (Ollama, LM Studio)",
            f"set one of {names}; or `perdure model get small`; or start Ollama and get a model: `ollama pull qwen3`",
        )


async def _model_checks(
    setting: str, registry: app.ModelRegistry, progress: Callable[[str], None]
) -> AsyncIterator[Check]:
    """Which model new agents get, and whether it works."""
    choice = await registry.choose(setting, progress=progress)
    for note in choice.notes:
        if note not in {listing.problem for listing in registry.listings.values()}:  # their provider's check has these
            yield Check("model", "note", f"not chosen: {note}")
    served = registry.provider_of(choice.handle)
    if served is not None and served[0].provider not in {provider.provider for provider in registry.endpoints}:
        name, source = served[0].provider, served[0].source
        fix = f"start it, or say where it is: {' or '.join(app.PROVIDERS[name].urls)}"
        yield Check("model", "broken", f"{choice.handle} ({choice.reason}): {name} is not running on {source}", fix)
        return
    if not registry.takes(choice.handle):
        fix = "`PERDURE_MODEL` is provider/name, of a provider that is found above; unset it to let Perdure choose"
        yield Check("model", "broken", f"{choice.handle} ({choice.reason}) is not available here", fix)
        return
    try:
        facts = app.facts_of(choice.handle)
    except PerdureError as error:
        yield Check("catalog", "broken", str(error), "correct the file, or unset PERDURE_CATALOG")
        yield Check("model", "ok", f"{choice.handle} ({choice.reason})")
        return
    window, served_window = registry.window_tokens(choice.handle), registry.traits(choice.handle).window_tokens
    is_guess = not facts.known and served_window is None
    text = f"window {window or facts.window_tokens:,} tokens{', a guess' if is_guess else ''}"
    if facts.input_price:
        text += f", {price(facts.input_price)} in and {price(facts.output_price)} out for a million tokens"
    yield Check("model", "ok", f"{choice.handle} ({choice.reason}): {text}")
    async for check in _local_model_checks(choice, registry, progress):
        yield check


async def _local_model_checks(
    choice: app.DefaultModel, registry: app.ModelRegistry, progress: Callable[[str], None]
) -> AsyncIterator[Check]:
    """What a model on a local server does about tools, how large its window is, and how fast it is: tried out."""
    served = registry.provider_of(choice.handle)
    if served is None or not served[0].local:
        return
    if (trial := registry.trials.get(choice.handle)) is None:
        progress(f"trying a tool call on {choice.handle}…")
        trial = await registry.try_tools(choice.handle)
    await registry.look_at(choice.handle)  # Ollama says the window only of a model that is loaded
    traits = registry.traits(choice.handle)
    if trial.calling is None:
        yield Check("tools", "broken", f"{choice.handle}: it {trial.problem}", "start its server, or look at its log")
        return
    fix = "" if traits.calling == "native" else "a larger model, such as qwen3, also edits its memory by tools"
    yield Check("tools", "ok" if not fix else "note", f"{choice.handle} {app.describe_calling(traits)}", fix)
    window = traits.window_tokens
    if window is not None and window < SMALL_WINDOW_TOKENS:
        fix = _WINDOW_FIXES.get(traits.server, "")
        yield Check("window", "note", f"its server runs {served[1]} with a window of {window:,} tokens", fix)
    if traits.tokens_per_s is not None:
        read, written = traits.tokens_per_s
        seconds = app.first_answer_s(traits, prompt_tokens=FIRST_PROMPT_TOKENS[is_small(traits)]) or 0
        text = f"reads about {read:,.0f} tokens a second and writes {written:,.0f}"
        yield Check(
            "speed", "ok", f"{choice.handle} {text}: expect a first answer in about {max(1, round(seconds)):,} s"
        )


async def _embeddings_check(setting: str) -> Check:
    """Which embedder makes the vectors, tried on one word; or why there is none."""
    problem = ""
    try:
        choice = app.choose_embedder(setting)
        if (embedder := choice.embedder) is None:
            why = f"none: memory is searched by words and their stems (lexical-only): {choice.reason}"
            return Check("embeddings", "note", why)
        name = f"{embedder.handle} ({choice.reason})"
        try:
            async with asyncio.timeout(EMBED_TIMEOUT_S):
                await embedder.embed(["hello"])
            return Check("embeddings", "ok", f"{name}: vectors of {embedder.dimensions} numbers")
        except TimeoutError:
            problem = f"{name} did not answer within {EMBED_TIMEOUT_S:g} s"
        except PerdureError as error:
            problem = f"{name}: {error}"
        finally:
            await embedder.close()
    except PerdureError as error:
        problem = str(error)
    return Check("embeddings", "broken", problem, "correct PERDURE_EMBEDDING; `none` searches by words alone")


async def _sandbox_check(settings: Settings) -> Check:
    """Whether the sandbox runs code here, tried out; and what that means in plain words."""
    sandbox = app.sandbox_of(settings)
    try:
        isolation = await sandbox.isolation()
    finally:
        await sandbox.close()
    weaknesses = [f"{measure.name}: {measure.meaning}" for measure in isolation.measures if not measure.works]
    text = "; ".join([isolation.summary, *(weaknesses if isolation.backend != "none" else [])])
    if settings.sandbox_network == "on" and isolation.backend != "none":
        text += "; tools may reach the hosts that they list"
    text += "; files and web pages are read in it" if isolation.enough else f"; {READ_OUTSIDE}"
    if isolation.unsafe:
        return Check("sandbox", "broken", f"tools run without one: {text}", "unset PERDURE_SANDBOX")
    if not isolation.enough:
        fix = "" if settings.sandbox == "off" else "docs/sandbox.md says what the kernel or the container has to allow"
        return Check("sandbox", "note", f"custom tools and run_code are refused: {text}", fix)
    return Check("sandbox", "ok", text)


def _files_check() -> Check:
    """Whether every kind of file can be read."""
    unreadable = [kind for kind, package in (("PDF", "pypdf"), ("DOCX", "mammoth")) if find_spec(package) is None]
    if unreadable:
        text = f"{' and '.join(unreadable)} can't be read; text, source code, HTML, CSV, JSON and XLSX can"
        return Check("files", "note", text, pip_line("'perdure[files]'"))
    return Check("files", "ok", "PDF, DOCX, XLSX, HTML, source code and text can be read")


def _api_key_check(config: ServerConfig) -> Check:
    """Whether the server asks for a key, and where the key is."""
    if not config.api_key:
        text = (
            "none of the server's own: every program and every user of this machine can talk to the agents that"
            " `perdure serve` serves, unless the store has keys (`perdure key list`)"
        )
        return Check("API key", "note", text, "PERDURE_API_KEY=auto makes one and keeps it in the data folder")
    text = "set, not shown"
    if file := config.key_file:
        text = f"in {file}, which you alone can read; `perdure key show` prints it"
        text = text if file.exists() else f"the next `perdure serve` makes one, in {file}"
    return Check("API key", "ok", text)


async def _port_check(port: int) -> Check:
    """Whether `perdure serve` can listen on the port, or who does."""
    reply = b""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return Check("port", "ok", f"{port} is free: `perdure serve` listens there")
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(ASK_TIMEOUT_S):
            writer.write(f"GET /v1/health/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            reply = await reader.read(4_096)
    writer.close()
    if b" 200 " in reply[:20] and b'"status"' in reply:
        return Check("port", "ok", f"a server answers on {port} already: http://127.0.0.1:{port}")
    fix = f"`perdure serve --port {port % PORT_MAX + 1}` takes another one"
    return Check("port", "note", f"{port} is taken by another program", fix)
