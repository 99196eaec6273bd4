"""The log of the server: what a line is made of, and what never stands in one."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from perdure.core.errors import InvalidInput, StoreFull
from perdure.server.config import ServerConfig
from perdure.server.log import REPEATS_MAX, current_trace, log_to

SECRET = "a-long-and-random-api-key"
SAID = "my doctor says it is nothing"

log = logging.getLogger("perdure.test")


@contextmanager
def capture_log(
    form: str = "console", level: str = "info", environment: Mapping[str, str] | None = None
) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with log_to(stream, form=form, level=level, environment=environment or {}):
        yield stream


def fail(error: Exception) -> None:
    try:
        raise error
    except Exception:
        log.exception("it stopped at a defect")


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_what_and_of_which_request() -> None:
    """As text and as JSON."""
    token = current_trace.set(trace := "0" * 32)
    try:
        with capture_log() as text, capture_log("json") as lines:
            log.warning("the store is %s", "busy")
    finally:
        current_trace.reset(token)

    assert text.getvalue().endswith(f" WARNING perdure.test: the store is busy trace_id={trace}\n")
    (shape,) = objects(lines)
    assert shape.pop("at").endswith("Z")
    assert shape == {"level": "warning", "logger": "perdure.test", "message": "the store is busy", "trace_id": trace}


def test_a_defect_has_its_traceback_and_not_what_was_said() -> None:
    """The lines of code, also of what caused it; the text of an error only where it is ours, or at debug."""
    with capture_log("json") as lines, capture_log() as text:
        fail(ValueError(SAID))
        fail(StoreFull("no space left"))
    with capture_log(level="debug") as debug:
        fail(ValueError(SAID))
    first, second = objects(lines)

    assert first["error"] == "ValueError"
    assert any("raise error" in line for line in first["traceback"])
    assert SAID not in lines.getvalue() + text.getvalue()
    assert second["traceback"][-1] == "StoreFull: no space left"
    assert SAID in debug.getvalue()


def test_what_caused_an_error_is_told_before_it() -> None:
    """A chain that never ends is cut."""
    first, second = KeyError("a"), TypeError("b is not a number")
    second.__cause__, first.__context__ = first, second
    with capture_log("json") as lines:
        fail(second)
    kinds = [line.partition(":")[0] for line in objects(lines)[0]["traceback"] if not line.startswith("  ")]

    assert kinds[-2:] == ["KeyError", "TypeError"]


def test_secrets_and_control_characters_never_stand_in_a_line() -> None:
    """Whoever sends a path or a key can't write lines of the log."""
    environment = {"OPENAI_API_KEY": SECRET, "EDITOR": "an ordinary value"}
    with capture_log(environment=environment) as text, capture_log("json", environment=environment) as lines:
        log.warning("key %s, path %s, %s", SECRET, "/a\n2026 ERROR x\x1b[2J", "an ordinary value")

    for stream in (text, lines):
        assert SECRET not in stream.getvalue()
        assert len(stream.getvalue().splitlines()) == 1
        assert "\x1b" not in stream.getvalue()
        assert "an ordinary value" in stream.getvalue()


def test_levels_and_other_packages() -> None:
    """Ours from the level on; others' from warning on; of MCP nothing, which quotes what servers send."""

    def tell() -> None:
        for name in ("perdure.a", "httpx", "mcp.client", "uvicorn.error"):
            logging.getLogger(name).info("%s tells", name)
            logging.getLogger(name).warning("%s warns", name)

    with capture_log(level="info") as info:
        tell()
    with capture_log(level="error") as error:
        tell()
    with capture_log("off") as off:
        log.warning("nothing")

    shown = [line.split(": ", 1)[1] for line in info.getvalue().splitlines()]
    assert shown == ["perdure.a tells", "perdure.a warns", "httpx warns", "uvicorn.error warns"]
    assert error.getvalue() + off.getvalue() == ""


def test_the_same_line_again_and_again_is_counted() -> None:
    """So that bad requests don't fill the disk; a traceback is always written."""
    with capture_log() as text:
        for _ in range(10 * REPEATS_MAX):
            logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        for _ in range(2 * REPEATS_MAX):
            fail(RuntimeError())

    assert text.getvalue().count("Invalid HTTP request") == REPEATS_MAX
    assert "more of these lines are left out" in text.getvalue()
    assert text.getvalue().count("it stopped at a defect") == 2 * REPEATS_MAX


def test_a_thread_that_stops_is_told() -> None:
    """With its name."""

    def broken() -> None:
        raise RuntimeError

    with capture_log() as text:
        thread = threading.Thread(target=broken, name="perdure-write")
        thread.start()
        thread.join()

    assert "the thread perdure-write stopped at a defect" in text.getvalue()


def test_a_stream_that_can_not_be_written_stops_nothing() -> None:
    """Who reads stderr may leave, and its disk may be full."""
    stream = io.StringIO()
    with log_to(stream, form="console", level="info", environment={}):
        stream.close()
        log.warning("nobody reads this")


@pytest.mark.parametrize("name", ["PERDURE_LOG", "PERDURE_LOG_LEVEL"])
def test_a_form_that_is_none_is_refused(name: str) -> None:
    """With the choices."""
    with pytest.raises(InvalidInput, match=f"{name} is 'loud': .* is needed"):
        ServerConfig.from_environment({name: "loud"})

    config = ServerConfig.from_environment({"PERDURE_LOG": "JSON", "PERDURE_LOG_LEVEL": "error"})
    assert (config.log, config.log_level) == ("json", "error")
