"""What is known of models, and what a user's own file may say instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import InvalidInput
from perdure.providers.catalog import CATALOG_VARIABLE, ModelFacts, facts_of, figures_of


@pytest.mark.parametrize(
    ("handle", "window", "input_price"),
    [
        ("openai/gpt-4o", 128_000, 2.5),
        ("openai/gpt-4o-mini-2024-07-18", 128_000, 0.15),
        ("openai/gpt-4.1-mini", 1_000_000, 0.4),
        ("openai/gpt-5", 400_000, 1.25),
        ("openai/gpt-5-mini", 400_000, 0.25),
        ("openai/o3-mini", 200_000, 1.1),
        ("anthropic/claude-3-5-sonnet-20241022", 200_000, 3.0),
        ("anthropic/claude-sonnet-4-5-20250929", 200_000, 3.0),
        ("openrouter/anthropic/claude-opus-4.1", 200_000, 15.0),
        ("google/gemini-2.5-pro", 1_048_576, 1.25),
        ("openrouter/meta-llama/llama-3.1-8b-instruct", 131_072, None),
        ("deepseek/deepseek-chat", 64_000, 0.27),
        ("ollama/qwen3:8b", 40_960, 0.0),
        ("ollama/gemma2", 8_192, 0.0),
        ("mistral/mistral-small-latest", 262_144, 0.15),
        ("perdure/extractive", 128_000, 0.0),
    ],
)
def test_the_families_are_known(handle: str, window: int, input_price: float | None) -> None:
    """By the longest pattern that fits the name; what runs at home is free."""
    facts = facts_of(handle)

    assert facts.known
    assert facts.window_tokens == window
    assert facts.input_price == input_price
    assert 0 < facts.max_output_tokens <= facts.window_tokens


def test_an_unknown_model_has_safe_facts_and_no_price() -> None:
    """A guess that a request fits into, and nothing that would make a bill of 0."""
    facts = facts_of("somebody/their-own-model")

    assert facts == ModelFacts()
    assert (facts.window_tokens, facts.max_output_tokens, facts.input_price) == (32_768, 4_096, None)
    assert not facts.known


def test_what_is_cached_costs_less_and_its_least_size_is_known() -> None:
    """What the decision to rewrite a prefix needs; a missing price of the cache is that of input."""
    claude, gpt = facts_of("anthropic/claude-haiku-4-5"), facts_of("openai/gpt-4.1")

    assert (claude.cached_price, claude.cache_write_price, claude.min_cache_tokens) == (0.1, 1.25, 4_096)
    assert (gpt.cached_price, gpt.cache_write_price, gpt.min_cache_tokens) == (0.5, 2.0, 1_024)


def test_the_figures_have_a_date() -> None:
    """So that a reader knows how old they are."""
    assert len(figures_of()) == len("2026-11")


def test_a_file_of_ones_own_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over a longer pattern of the built-in one; what it does not name stays, and an edit is seen."""
    file = tmp_path / "catalog.toml"
    file.write_text('[[model]]\nmatch = ["GPT-4o*"]\nwindow = 9_000\nprice = { input = 1, output = 2 }\n')
    monkeypatch.setenv(CATALOG_VARIABLE, str(file))

    assert facts_of("openai/gpt-4o-mini").window_tokens == 9_000
    assert facts_of("openai/gpt-4o-mini").output_price == 2.0
    assert facts_of("openai/gpt-4.1").window_tokens == 1_000_000

    file.write_text('\ufefffree_providers = ["here"]\n[[model]]\nmatch = ["gpt-4o-mini"]\nwindow = 10_000\n')
    assert facts_of("openai/gpt-4o-mini").window_tokens == 10_000
    assert facts_of("here/gpt-4.1").input_price == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[model]", "is not TOML"),
        ("[[model]]\nwindow = 5", "model 1: match is missing"),
        ('[[model]]\nmatch = "x"', "model 1: match is 'x'"),
        ('[[model]]\nmatch = ["x"]\nwindow = 0', "model 1: window is 0"),
        ('[[model]]\nmatch = ["x"]\nwindow = true', "model 1: window is True"),
        ('[[model]]\nmatch = ["x"]\n[[model]]\nmatch = ["y"]\noutput = "many"', "model 2: output is 'many'"),
        ('[[model]]\nmatch = ["x"]\ntools = "yes"', "model 1: tools is 'yes'"),
        ('[[model]]\nmatch = ["x"]\nprice = { input = -1 }', "model 1: price.input is -1"),
        ('[[model]]\nmatch = ["x"]\nprice = { inptu = 1 }', "'inptu'"),
        ('[[model]]\nmatch = ["x"]\nwindw = 1', "'windw'"),
        ("model = 5", "model is 5"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_file_and_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    """Never a silent default."""
    file = tmp_path / "mine.toml"
    file.write_text(text)
    monkeypatch.setenv(CATALOG_VARIABLE, str(file))

    with pytest.raises(InvalidInput) as raised:
        facts_of("openai/gpt-4o")

    assert str(file) in str(raised.value)
    assert expected in str(raised.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the variable."""
    monkeypatch.setenv(CATALOG_VARIABLE, str(tmp_path / "none.toml"))

    with pytest.raises(InvalidInput, match=CATALOG_VARIABLE):
        facts_of("openai/gpt-4o")
