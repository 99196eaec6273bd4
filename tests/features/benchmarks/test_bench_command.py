"""`perdure bench`: a run on the command line, its price and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure import InvalidInput
from perdure.features.benchmarks.page import write_page
from tests.support.programs import run_inside


def test_a_haystack_is_searched_by_the_program_without_a_key(tmp_path: Path) -> None:
    """The needle is found at each depth, the price is shown, and the page has the picture."""
    out = str(tmp_path / "out")
    options = ["--model", "perdure/extractive", "--lengths", "400", "--depths", "0,100", "--seeds", "1", "--out", out]

    result = run_inside(tmp_path, "bench", "niah", *options, "--yes")

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("2 questions for perdure/extractive, about ") and "about $0." in result.stdout
    figures = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    assert figures["systems"][0]["kinds"]["needle"]["score"] == 1
    page = run_inside(tmp_path, "bench", "page", out)
    assert page.stdout.strip() == f"The results are in {out}/results.html"
    text = (tmp_path / "out" / "results.html").read_text("utf-8")
    assert (
        text.count("<svg") == 1 and "400" in text and "Wilson" in text and "<script" not in text and "<link" not in text
    )


def test_it_asks_before_anything_costs(tmp_path: Path) -> None:
    """Without a terminal it says what would let it go on."""
    result = run_inside(
        tmp_path, "bench", "locomo", "--data", "sample", "--model", "perdure/extractive", "--out", str(tmp_path)
    )

    assert result.returncode == 1
    assert "24 questions" in result.stdout and "Pass --yes to ask them" in result.stderr


def test_the_search_needs_no_model(tmp_path: Path) -> None:
    result = run_inside(tmp_path, "bench", "longmemeval", "--data", "sample", "--json", "--out", str(tmp_path / "out"))

    found = json.loads(result.stdout)
    assert [one["name"] for one in found["search"]] == ["perdure", "bm25"]
    assert found["search"][0]["kinds"]["all"]["questions"] == 6


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing"], "NAME is 'nothing'"),
        (["page"], "give the folder with the results"),
        (["page", "docs"], "has no result.json"),
        (["dmr", "somewhere"], "the folder of a run is given by --out"),
        (["dmr"], "--data is missing"),
        (["dmr", "--data", "sample", "--judge", "me"], "--judge is 'me'"),
        (["dmr", "--data", "sample", "--baselines", "rag"], "--baselines is 'rag'"),
        (["dmr", "--data", "sample", "--depths", "50"], "--lengths and --depths are of niah"),
        (["niah", "--lengths", "5"], "--lengths is '5': give numbers from 100"),
        (["niah", "--line", "old"], "--line is 'old'"),
        (["niah", "--settings", "3"], "--settings is '3': give a JSON object"),
        (["niah", "--settings", "{a"], "--settings is '{a': give a JSON object"),
        (["niah", "--model", "none/such", "--yes"], "none/such"),
        (["niah", "--model", "perdure/extractive", "--engine", "no", "--yes"], "no context engine 'no'"),
    ],
)
def test_what_can_not_be_run_is_refused(tmp_path: Path, arguments: list[str], problem: str) -> None:
    out = [] if arguments[0] == "page" else ["--out", str(tmp_path / "out")]

    result = run_inside(tmp_path, "bench", *arguments, *out)

    assert result.returncode != 0 and problem in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"benchmark": "dmr"}', '{"data": {}, "title": "x", "about": "y"}', "\xff"]
)
def test_a_page_of_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    """With the file's name."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "result.json").write_bytes(text.encode("latin-1"))

    with pytest.raises(InvalidInput, match=r"one/result\.json is no result that `perdure bench` has written"):
        write_page(tmp_path)
    assert not (tmp_path / "results.html").exists()
