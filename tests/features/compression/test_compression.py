"""What tools return is compressed once, before it is stored; the log has the whole text, and handles open it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, Perdure, Settings
from perdure.context import compress
from perdure.core.messages import ToolResult
from perdure.features.compression.results import AT_ONCE_CHARS
from perdure.testing import ScriptedModel, calls, says
from tests.support.error_outputs import ERROR_OUTPUTS, ERRORS
from tests.support.tool_outputs import records, syslog


def serve(make: Callable[[], str]) -> Callable[[], str]:
    """A tool that returns this text."""

    def fetch() -> str:
        """Fetch."""
        return make()

    return fetch


def run(
    folder: Path, make: Callable[[], str], *more: Any, settings: dict[str, Any] | None = None
) -> tuple[ScriptedModel, list[ToolResult]]:
    """Let an agent call the tool, then what the model calls `more`; return the model and the results of the log."""
    model = ScriptedModel(calls("fetch"), *more, says("done"))
    with Perdure(folder / "a.db", tools=[serve(make)], models={"test/m": model}) as perdure:
        agent = perdure.create_agent(model="test/m", settings=settings or {})
        results = [result for message in agent.send("Go.").messages for result in message.results]
    return model, results


def seen(model: ScriptedModel, request: int = 1) -> str:
    """What the model saw of the newest result in this request."""
    return model.requests[request].messages[-1].results[0].text


def test_the_model_sees_the_compressed_form_and_the_log_has_the_whole(tmp_path: Path) -> None:
    """The same bytes in each later request, so that a provider's cache stays valid."""
    model, results = run(tmp_path, records, calls("fetch"))

    assert results[0].text == records()
    assert seen(model) == compress(records(), level="lossless").text
    assert model.requests[2].messages[-3].results[0].text == seen(model)


def test_a_text_that_takes_too_long_stands_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote it may have made it to keep the reader busy; a short one is compressed all the same."""
    monkeypatch.setattr("perdure.features.compression.results.BUDGET_S", 0.0)
    model, results = run(tmp_path, records)
    assert len(records()) > AT_ONCE_CHARS and seen(model) == results[0].text == records()

    monkeypatch.setattr("perdure.features.compression.results.AT_ONCE_CHARS", len(records()))
    model, _ = run(tmp_path / "at once", records)
    assert seen(model) == compress(records(), level="lossless").text


def test_no_kind_of_text_is_tried_when_the_time_is_over() -> None:
    """A thread can't be ended: it stops at the next kind."""
    assert compress(records(), is_over=lambda: True).text == records()


def test_a_result_beyond_its_tools_limit_is_shortened_not_cut(tmp_path: Path) -> None:
    """What matters stands in it, and its handle is the number of its message."""
    model, _ = run(tmp_path, lambda: records(2_000))
    shown = seen(model)

    assert len(shown) < 50_000 and "legacy-77" in shown and "CX-4411" in shown
    assert 'context_expand("msg-2", ' in shown and "characters are not shown" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"where": "plan=legacy-77"}, '"plan":"legacy-77"'),
        ({"path": "[2].amount"}, "[2].amount| "),
        ({"rows": "1001"}, "8123456"),
        ({"grep": "CX-44.1"}, "CX-4411"),
    ],
)
def test_the_whole_opens_by_its_handle(tmp_path: Path, how: dict[str, str], expected: str) -> None:
    """By conditions, path, rows or pattern; in at most a thousand tokens."""
    _, results = run(tmp_path, lambda: records(2_000), calls("context_expand", handle="msg-2", **how))

    assert (results[1].status, expected in results[1].text) == ("success", True), results[1].text
    assert len(results[1].text) < 5_000


def test_a_wrong_place_says_what_there_is(tmp_path: Path) -> None:
    """So that the model can repair its call."""
    _, results = run(tmp_path, syslog, calls("context_expand", handle="msg-2", where="a=b"))

    assert (results[1].status, "no rows and no paths" in results[1].text) == ("error", True)


@pytest.mark.parametrize(
    ("setting", "form"),
    [
        ("off", "["),
        ({"fetch": "off", "*": "full"}, "["),
        ("lossless", "[perdure json lossless"),
        ({"x": "off"}, "[perdure"),
    ],
)
def test_an_agent_says_how_results_are_compressed(tmp_path: Path, setting: object, form: str) -> None:
    """All alike, or by the name of the tool."""
    model, _ = run(tmp_path, records, settings={"tool_output": setting})

    assert seen(model).startswith(form) and (form == "[") == (seen(model) == records())


@pytest.mark.parametrize(("own", "form"), [({}, "["), ({"tool_output": {"fetch": "full"}}, "[perdure json")])
def test_a_server_has_a_default(tmp_path: Path, own: dict[str, Any], form: str) -> None:
    """It holds for agents that say nothing of the tool."""
    model = ScriptedModel(calls("fetch"), says("done"))
    settings = Settings(tool_output="off", embedding="none")
    with Perdure(tmp_path / "a.db", tools=[serve(records)], models={"test/m": model}, settings=settings) as perdure:
        perdure.create_agent(model="test/m", settings=own).send("Go.")

    assert seen(model).startswith(form)


@pytest.mark.parametrize("setting", ["full", "off"])
def test_what_a_caller_brings_is_compressed_too(tmp_path: Path, setting: str) -> None:
    """The same as the result of a tool that the server runs: the log and the caller's answer have the whole."""
    model = ScriptedModel(calls("look"), says("done"), says("Yes."))

    def look() -> str:
        """Look."""
        return records(60)

    with Perdure(tmp_path / "a.db", models={"test/m": model}) as perdure:
        agent = perdure.create_agent(model="test/m", settings={"tool_output": setting})
        agent.send("Go.", client_tools=[look])
        stored = [result.text for message in agent.messages(limit=10) for result in message.results]
        agent.send("And now?")

    assert set(stored) == {records(60)}
    assert seen(model) == (records(60) if setting == "off" else compress(records(60)).text)
    assert model.requests[2].messages[2].results[0].text == seen(model)


def test_an_unknown_level_is_refused(tmp_path: Path) -> None:
    """With the levels that there are."""
    with Perdure(tmp_path / "a.db") as perdure, pytest.raises(InvalidInput, match="off, lossless, full"):
        perdure.create_agent(settings={"tool_output": {"fetch": "much"}})


def test_the_text_of_an_error_stays_whole(tmp_path: Path) -> None:
    """A model has to read it."""

    def fail() -> str:
        raise ValueError(records(60))

    model, results = run(tmp_path, fail)

    assert results[0].status == "error" and seen(model) == results[0].text


def test_what_is_forgotten_is_in_no_compressed_form(tmp_path: Path) -> None:
    """The compressed form of a changed result goes: it may hold the text in another shape."""
    model = ScriptedModel(calls("fetch"), says("done"), says("Hm."))
    with Perdure(tmp_path / "a.db", tools=[serve(syslog)], models={"test/m": model}) as perdure:
        agent = perdure.create_agent(model="test/m")
        agent.send("Go.")
        agent.forget("session opened for user u3")
        agent.send("And now?")
    sent = json.dumps([result.text for message in model.requests[-1].messages for result in message.results])

    assert "session opened" in seen(model) and "{}" in seen(model)
    assert "[redacted]" in sent and "{}" not in sent and "user u3" not in sent


FULL = os.environ.get("PERDURE_FAULTS") == "full"
LIMITED = ["iso", "access", "strings", "object", "xml", "one line", "prose", "traces"]
WAYS = [("full", False), ("lossless", False), ("full", True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "level", "is_error"),
    [(kind, *way) for n, kind in enumerate(LIMITED) for m, way in enumerate(WAYS) if FULL or (n - m) % 3 == 0],
)
def test_the_limit_of_a_tool_never_hides_the_error(tmp_path: Path, kind: str, level: str, is_error: bool) -> None:
    """Of whatever kind the text is, also if the tool failed: it is shortened to the limit, with the error."""
    text = ERROR_OUTPUTS[kind](random.Random(1), 3_000, 1_500, ERRORS[0])

    def fetch() -> str:
        """Fetch."""
        if is_error:
            raise RuntimeError(text)
        return text

    model = ScriptedModel(calls("fetch"), says("done"))
    with Perdure(tmp_path / "a.db", tools=[fetch], models={"test/m": model}) as perdure:
        settings = {"tool_output": level}
        perdure.create_agent(model="test/m", settings=settings).send("Go.")
    shown = seen(model)

    assert ERRORS[0] in shown and ("lossless" in shown[:30] or 'context_expand("msg-2"' in shown)
    assert len(shown) <= 50_000 and "characters are not shown" not in shown


@pytest.mark.parametrize(("lines", "is_client_tool"), [(1_000, True), (8_000, False)])
def test_an_error_in_a_result_that_is_not_kept_whole_is_shown(tmp_path: Path, lines: int, is_client_tool: bool) -> None:
    """Also where it stands in the part that is not stored: of a caller's result, or one of more than 400,000 signs."""
    model = ScriptedModel(calls("look"), says("done"))

    def look() -> str:
        """Look."""
        return ERROR_OUTPUTS["prose"](random.Random(1), lines, lines * 6 // 10 + 10, ERRORS[0])

    with Perdure(tmp_path / "a.db", tools=() if is_client_tool else [look], models={"test/m": model}) as perdure:
        agent = perdure.create_agent(model="test/m", settings={"context_window_tokens": 16_000})
        agent.send("Go.", client_tools=[look] if is_client_tool else ())
        stored = [result.text for message in agent.messages(limit=10) for result in message.results]

    assert "the result was cut here" in stored[0] and ERRORS[0] not in stored[0]
    assert ERRORS[0] in seen(model)
    assert "of its beginning and end are kept: lines and rows count anew there]" in seen(model)


def test_in_a_small_window_a_result_is_shortened_to_what_fits(tmp_path: Path) -> None:
    """One within its tool's limit, but larger than the window, would lose its middle with the error in it."""
    model = ScriptedModel(calls("look"), says("done"))

    def look() -> str:
        """Look."""
        return ERROR_OUTPUTS["prose"](random.Random(1), 600, 360, ERRORS[0])

    with Perdure(tmp_path / "a.db", tools=[look], models={"test/m": model}) as perdure:
        perdure.create_agent(model="test/m", settings={"context_window_tokens": 16_000}).send("Go.")

    assert ERRORS[0] in seen(model) and "are not shown" not in seen(model)
