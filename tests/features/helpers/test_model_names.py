"""What the names of models say, as OpenAI, Anthropic, Google and those that host models write them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from perdure.features.helpers.model_names import is_same_model, version_of
from perdure.features.helpers.routing import ALIASES, FAMILIES, INHERIT, ModelUnknown, choose_model
from tests.support.cases import for_each

# Models of one kind, each one newer than the one before it.
LINES: dict[str, Sequence[str]] = {
    "openai": (
        "openai/gpt-3.5-turbo-0613",
        "openai/gpt-3.5-turbo-1106",
        "openai/gpt-3.5-turbo",
        "openai/gpt-4-0125-preview",
        "openai/gpt-4-1106-preview",
        "openai/gpt-4-32k-0613",
        "openai/gpt-4-turbo-2024-04-09",
        "openai/gpt-4",
        "openai/gpt-4o-2024-05-13",
        "openai/gpt-4o-2024-11-20",
        "openai/gpt-4o",
        "openai/gpt-4.1-2025-04-14",
        "openai/gpt-4.1",
        "openai/gpt-4.5-preview-2025-02-27",
        "openai/gpt-5-2025-08-07",
        "openai/gpt-5",
        "openai/gpt-5.1-codex-max",
        "openai/gpt-5.2",
    ),
    "openai, thinking": ("openai/o1-preview", "openai/o1-2024-12-17", "openai/o1", "openai/o3-2025-04-16", "openai/o3"),
    "azure": ("azure/gpt-35-turbo-16k", "azure/gpt-4-32k", "azure/gpt-4o", "azure/gpt-4.1"),
    "anthropic": (
        "anthropic/claude-instant-1.2",
        "anthropic/claude-2.1",
        "anthropic/claude-3-sonnet-20240229",
        "anthropic/claude-3-5-sonnet-20240620",
        "anthropic/claude-3-5-sonnet-20241022",
        "anthropic/claude-3-5-sonnet-latest",
        "anthropic/claude-3-7-sonnet-20250219",
        "anthropic/claude-sonnet-4-20250514",
        "anthropic/claude-sonnet-4-0",
        "anthropic/claude-sonnet-4-5-20250929",
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-6",
        "anthropic/claude-sonnet-5",
    ),
    "bedrock": (
        "bedrock/anthropic.claude-3-haiku-20240307-v1:0:48k",
        "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0",
        "bedrock/us.anthropic.claude-3-5-sonnet-20241022-v2:0",
        "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0",
        "bedrock/eu.anthropic.claude-opus-4-1-20250805-v1:0",
        "bedrock/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock/us.anthropic.claude-opus-4-6-v1",
    ),
    "bedrock, llama": ("bedrock/meta.llama3-1-405b-instruct-v1:0", "bedrock/us.meta.llama3-3-70b-instruct-v1:0"),
    "vertex": (
        "vertex/claude-3-opus@20240229",
        "vertex/claude-3-5-sonnet@20240620",
        "vertex/claude-3-5-sonnet-v2@20241022",
        "vertex/claude-sonnet-4@20250514",
        "vertex/claude-opus-4-1@20250805",
    ),
    "google": (
        "google/gemini-pro",
        "google/gemini-1.5-pro-001",
        "google/gemini-1.5-pro-002",
        "google/gemini-1.5-pro",
        "google/gemini-2.0-flash-001",
        "google/gemini-2.0-flash",
        "google/gemini-2.5-pro-exp-03-25",
        "google/gemini-2.5-pro-preview-05-06",
        "google/gemini-2.5-pro-preview-06-05",
        "google/gemini-2.5-flash-preview-09-2025",
        "google/gemini-2.5-pro",
        "google/gemini-3-pro-preview",
        "google/gemini-3.1-pro-preview",
    ),
    "xai": ("xai/grok-2-1212", "xai/grok-3-beta", "xai/grok-3", "xai/grok-4-0709", "xai/grok-4", "xai/grok-4-1"),
    "groq": (
        "groq/llama3-70b-8192",
        "groq/llama-3.1-8b-instant",
        "groq/llama-3.3-70b-versatile",
        "groq/meta-llama/llama-4-maverick-17b-128e-instruct",
    ),
    "together": (
        "together/meta-llama/Meta-Llama-3.1-405B-Instruct-Turbo",
        "together/nvidia/Llama-3.3-Nemotron-Super-49B-v1.5",
        "together/meta-llama/Llama-4-Scout-17B-16E-Instruct",
    ),
    "together, qwen": (
        "together/Qwen/Qwen2-72B-Instruct",
        "together/Qwen/Qwen2.5-72B-Instruct-Turbo",
        "together/Qwen/Qwen3-235B-A22B-Instruct-2507-tput",
        "together/Qwen/Qwen3.5-397B-A17B",
    ),
    "fireworks": (
        "fireworks/accounts/fireworks/models/llama-v3p1-405b-instruct",
        "fireworks/accounts/fireworks/models/llama-v3p3-70b-instruct",
    ),
    "openrouter": (
        "openrouter/anthropic/claude-3.5-sonnet",
        "openrouter/anthropic/claude-3.7-sonnet:beta",
        "openrouter/anthropic/claude-3.7-sonnet",
        "openrouter/anthropic/claude-opus-4",
        "openrouter/anthropic/claude-opus-4.1",
        "openrouter/anthropic/claude-opus-4.5",
    ),
    "openrouter, deepseek": (
        "openrouter/deepseek/deepseek-r1-0528",
        "openrouter/deepseek/deepseek-chat-v3-0324:free",
        "openrouter/deepseek/deepseek-chat-v3.1",
        "openrouter/deepseek/deepseek-v3.2-exp",
        "openrouter/deepseek/deepseek-v3.2",
    ),
    "mistral": ("mistral/mistral-large-2402", "mistral/mistral-large-2411", "mistral/mistral-large-latest"),
    "ollama": ("ollama/llama2:13b", "ollama/llama3:latest", "ollama/llama3.1:70b", "ollama/llama3.1:latest"),
    "ollama, qwen": ("ollama/qwen:7b", "ollama/qwen2.5:72b-instruct-q4_K_M", "ollama/qwen3:0.6b"),
    "ollama, gemma": ("ollama/gemma:7b", "ollama/gemma2:27b", "ollama/gemma3:27b-it-qat"),
}


@for_each(LINES)
def test_names_tell_which_model_is_newer(line: str) -> None:
    """Sizes, dates, windows, tags, and what hosts add, are no versions."""
    for older, newer in itertools.pairwise(LINES[line]):
        assert version_of(older) < version_of(newer), (older, newer)


def test_so_many_names_are_in_the_table() -> None:
    assert sum(map(len, LINES.values())) > 90


@for_each(
    [
        ("gpt", "xai/grok-4", "openai/gpt-5.2"),  # not gpt-5.1-codex-max
        ("o", "xai/grok-4", "openai/o3"),
        ("sonnet", "openai/gpt-5", "anthropic/claude-sonnet-5"),
        ("sonnet", "bedrock/us.anthropic.claude-opus-4-6-v1", "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0"),
        ("opus", "vertex/gemini-2.5-pro", "vertex/claude-opus-4-1@20250805"),
        ("opus", "openrouter/deepseek/deepseek-v3.2", "openrouter/anthropic/claude-opus-4.5"),
        ("pro", "xai/grok-4", "google/gemini-3.1-pro-preview"),
        ("flash", "xai/grok-4", "google/gemini-2.5-flash-preview-09-2025"),
        ("grok", "openai/gpt-5", "xai/grok-4-1"),
        ("llama", "groq/qwen/qwen3-32b", "groq/meta-llama/llama-4-maverick-17b-128e-instruct"),
        ("llama", "together/Qwen/Qwen2-72B-Instruct", "together/meta-llama/Llama-4-Scout-17B-16E-Instruct"),
        ("llama", "ollama/qwen3:0.6b", "ollama/llama3.1:latest"),
        ("qwen", "ollama/llama3:latest", "ollama/qwen3:0.6b"),
        ("gemma", "ollama/llama3:latest", "ollama/gemma3:27b-it-qat"),
        ("mistral", "ollama/llama3:latest", "mistral/mistral-large-latest"),
        ("deepseek", "openrouter/anthropic/claude-opus-4", "openrouter/deepseek/deepseek-v3.2"),
        ("default", "xai/grok-4", "xai/grok-4"),
        ("opusplan", "xai/grok-4", "bedrock/us.anthropic.claude-opus-4-6-v1"),
    ]
)
def test_an_alias_is_the_newest_of_its_family(alias: str, parent: str, newest: str) -> None:
    """In whatever order providers list them; special forms come last."""
    known = [name for line in LINES.values() for name in line] + ["openai/gpt-5.3-pro", "openai/gpt-5-mini"]
    for seed in range(5):
        random.Random(seed).shuffle(known)
        choice = choose_model(
            {"call": alias, "parent": parent}, known, is_there=known.__contains__, allows=lambda handle: True
        )
        assert choice.model == newest


SONNET = "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"
KNOWN = ("bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0", SONNET, "openai/gpt-5", "ollama/llama3.1:latest")


@pytest.mark.parametrize(
    ("wish", "model", "reason"),
    [
        ("claude-sonnet-4-5", SONNET, "at bedrock"),
        ("claude-sonnet-4-5-20250929", SONNET, "at bedrock"),
        ("claude-sonnet-4-5@20250929", SONNET, "at bedrock"),
        ("sonnet[1m]", SONNET, "the newest of the family sonnet at bedrock"),
        ("claude-sonnet-4-5[1m]", SONNET, "at bedrock"),
        ("claude-sonnet-9", SONNET, "which is not here: the newest of the family sonnet at bedrock"),
        ("claude-3-5-haiku-20241022", KNOWN[0], "exactly its model"),
        ("claude-opus-4-1-20250805", KNOWN[0], "none of it is known: the model of the agent that calls"),
        ("nova-pro-1", KNOWN[0], "which is not here, and none of it is known"),
        ("default", KNOWN[0], "the model of the agent that calls"),
        ("llama3.1", "ollama/llama3.1:latest", "known, at ollama"),
        ("gpt-5-codex", "openai/gpt-5", "which is not here: the newest of the family gpt that is known, at openai"),
    ],
)
def test_the_names_of_a_definition_from_elsewhere_are_understood(wish: str, model: str, reason: str) -> None:
    """As Claude Code has them: the same model under the name of this provider, else its family, else the parent's."""
    choice = choose_model(
        {"definition": wish, "parent": KNOWN[0]}, KNOWN, is_there=KNOWN.__contains__, allows=lambda handle: True
    )

    assert choice.model == model and choice.source == "definition"
    assert choice.reason.startswith(f"the definition says {wish}") and reason in choice.reason


@pytest.mark.parametrize("source", ["call", "PERDURE_SUBAGENT_MODEL"])
@pytest.mark.parametrize(
    ("wish", "near"),
    [
        ("claude-sonnet-9", "claude-sonnet-4-5"),
        ("sonet", "did you mean sonnet"),
        ("gpt-5o", "did you mean openai/gpt-5"),
        ("openai/gpt-5o", "did you mean openai/gpt-5"),
    ],
)
def test_a_call_or_the_setting_gets_no_other_model_than_it_names(source: str, wish: str, near: str) -> None:
    """The error says who named it, and what is near; a name of the same model is understood."""
    with pytest.raises(ModelUnknown, match=f"{source}.*{wish}") as caught:
        choose_model(
            {source: wish, "parent": KNOWN[0]},  # type: ignore[dict-item]
            KNOWN,
            is_there=KNOWN.__contains__,
            allows=lambda handle: True,
        )

    assert near in str(caught.value)


@pytest.mark.parametrize("wish", ["sonet", "nobody/claude-opus-4-5", "has space 4"])
def test_a_mistake_in_a_definition_is_an_error(wish: str) -> None:
    """An alias with a mistake, or a handle whose provider is not here, is no name from elsewhere."""
    with pytest.raises(ModelUnknown, match="the definition says"):
        choose_model(
            {"definition": wish, "parent": "openai/gpt-5"},
            KNOWN,
            is_there=KNOWN.__contains__,
            allows=lambda handle: True,
        )


def test_a_name_is_not_taken_for_one_of_a_provider_without_that_family() -> None:
    """A provider that has listed nothing takes any name, but none of another vendor."""
    choice = choose_model(
        {"definition": "claude-haiku-4-5", "parent": "openai/gpt-5"},
        (),
        is_there=lambda handle: handle.startswith("openai/"),
        allows=lambda handle: True,
    )

    assert choice.model == "openai/gpt-5"


@pytest.mark.parametrize(
    ("handle", "name", "same"),
    [
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5", True),
        ("bedrock/us.anthropic.claude-opus-4-6-v1", "claude-opus-4-6", True),
        ("anthropic/claude-3-5-sonnet-20241022", "claude-3-5-sonnet-20240620", False),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4", False),
        ("anthropic/claude-sonnet-4", "claude-sonnet-4-5", False),
        ("ollama/qwen3:8b", "qwen3:32b", False),
        ("groq/qwen/qwen3-32b", "qwen3-8b", False),
        ("google/gemini-3-pro-preview", "pro-preview", False),
        ("openai/gpt-5", "5", False),
        ("openai/gpt-5-codex", "gpt-5", False),
        ("anthropic/x", "", False),
        ("", "x1", False),
    ],
)
def test_the_same_model_has_many_names(handle: str, name: str, same: bool) -> None:
    assert is_same_model(handle, name) == same


def test_each_other_word_means_an_alias() -> None:
    """Also where it is written as Claude Code writes it."""
    assert all(alias in FAMILIES or alias == INHERIT for alias in ALIASES.values())
    assert not ALIASES.keys() & FAMILIES.keys()
