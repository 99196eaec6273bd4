"""The model of a helper: every combination of the four sources, aliases, the parent's family, prefixes and policies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import pytest

from perdure.features.helpers.model_names import version_of
from perdure.features.helpers.routing import (
    FAMILIES,
    SOURCES,
    ModelForbidden,
    ModelSource,
    ModelUnknown,
    choose_model,
    family_of,
)

OPUS, SONNET, HAIKU = "anthropic/claude-opus-4-5", "anthropic/claude-sonnet-4-5-20250929", "anthropic/claude-haiku-4-5"
KNOWN = (
    "anthropic/claude-haiku-3-5",
    HAIKU,
    "anthropic/claude-opus-4-1-20250805",
    OPUS,
    "anthropic/claude-sonnet-4-20250514",
    SONNET,
    "bedrock/eu.anthropic.claude-haiku-4-5-20251001-v1:0",
    "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0",
    "bedrock/us.anthropic.claude-opus-4-1-20250805-v1:0",
    "google/gemini-2.5-flash",
    "google/gemini-2.5-flash-lite",
    "google/gemini-2.5-pro",
    "google/gemini-3-flash-preview",
    "openai/gpt-4.1",
    "openai/gpt-4.1-mini",
    "openai/gpt-5",
    "openai/gpt-5-mini",
    "openai/gpt-5-mini-2025-08-07",
    "openrouter/anthropic/claude-opus-4.5",
    "openrouter/openai/gpt-5-mini",
)
REGIONAL = "bedrock/us.anthropic.claude-opus-4-1-20250805-v1:0"
ROUTED = "openrouter/anthropic/claude-opus-4.5"

# parent -> wish -> the model, without a policy.
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "anthropic/claude-opus-4-1-20250805": {
        "inherit": "anthropic/claude-opus-4-1-20250805",
        "opus": "anthropic/claude-opus-4-1-20250805",  # its own family: no upgrade, no downgrade
        "haiku": HAIKU,
        "mini": "openai/gpt-5-mini",
        "claude-sonnet-4-20250514": "anthropic/claude-sonnet-4-20250514",
        "openai/gpt-4.1": "openai/gpt-4.1",
    },
    REGIONAL: {
        "inherit": REGIONAL,
        "opus": REGIONAL,
        "haiku": "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0",
        "mini": "openai/gpt-5-mini",
        "claude-sonnet-4-20250514": "anthropic/claude-sonnet-4-20250514",
        "openai/gpt-4.1": "openai/gpt-4.1",
    },
    ROUTED: {
        "inherit": ROUTED,
        "opus": ROUTED,
        "haiku": HAIKU,
        "mini": "openrouter/openai/gpt-5-mini",
        "claude-sonnet-4-20250514": "anthropic/claude-sonnet-4-20250514",
        "openai/gpt-4.1": "openai/gpt-4.1",
    },
    "openai/gpt-5-mini-2025-08-07": {
        "inherit": "openai/gpt-5-mini-2025-08-07",
        "opus": OPUS,
        "haiku": HAIKU,
        "mini": "openai/gpt-5-mini-2025-08-07",
        "claude-sonnet-4-20250514": "anthropic/claude-sonnet-4-20250514",
        "openai/gpt-4.1": "openai/gpt-4.1",
    },
}
WISHES = (None, *EXPECTED[ROUTED])

# policy -> the model it refuses -> what takes its place; None: nothing does.
POLICIES: Mapping[str, tuple[Callable[[str], bool], Mapping[str, str | None]]] = {
    "none": (lambda handle: True, {}),
    "no opus 4.5, no new haiku": (
        lambda handle: "opus-4.5" not in handle and "opus-4-5" not in handle and "haiku-4" not in handle,
        {
            OPUS: "anthropic/claude-opus-4-1-20250805",
            ROUTED: "anthropic/claude-opus-4-1-20250805",
            HAIKU: "anthropic/claude-haiku-3-5",
            "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0": "anthropic/claude-haiku-3-5",
        },
    ),
    "openai only": (
        lambda handle: handle.startswith("openai/"),
        {
            **{handle: None for handle in KNOWN if not handle.startswith("openai/")},
            "openrouter/openai/gpt-5-mini": "openai/gpt-5-mini",
        },
    ),
}


def choose(
    wishes: Mapping[ModelSource, str | None],
    known: Sequence[str] = KNOWN,
    allows: Callable[[str], bool] = lambda handle: True,
) -> tuple[str, ModelSource, str]:
    """The model, source and reason, where only known models can be used."""
    choice = choose_model(wishes, known, is_there=known.__contains__, allows=allows)
    return choice.model, choice.source, choice.reason


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("parent", EXPECTED)
def test_every_combination_of_sources(parent: str, policy: str) -> None:
    """The first source that names a model counts, whatever those behind it say."""
    allows, instead = POLICIES[policy]
    tried = 0
    for named in itertools.product(WISHES, repeat=3):
        wishes: dict[ModelSource, str | None] = {**dict(zip(SOURCES, named, strict=False)), "parent": parent}
        place = next((place for place, wish in enumerate(named) if wish is not None), 3)
        wish = "inherit" if place == 3 else named[place]
        assert wish is not None
        wanted = EXPECTED[parent][wish]
        expected = wanted if allows(wanted) else instead.get(wanted, wanted)
        if expected is None:
            with pytest.raises(ModelForbidden, match="the policy does not allow the model"):
                choose(wishes, allows=allows)
        else:
            model, source, reason = choose(wishes, allows=allows)
            assert (model, source) == (expected, SOURCES[place])
            assert (f"the policy does not allow {wanted}, so {expected}" in reason) == (expected != wanted)
        tried += 1

    assert tried == len(WISHES) ** 3


@pytest.mark.parametrize("alias", FAMILIES)
def test_each_alias_has_its_family(alias: str) -> None:
    """The models in its list belong to it and to no other, the newest first."""
    models = FAMILIES[alias].models
    owners = {model: [name for name, family in FAMILIES.items() if family.has(model)] for model in models}

    assert owners == {model: [alias] for model in models}
    assert list(models) == sorted(models, key=version_of, reverse=True)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("anthropic/claude-3-opus-20240229", "anthropic/claude-opus-4-20250514"),
        ("anthropic/claude-opus-4@20250514", "anthropic/claude-opus-4-1"),
        ("anthropic/claude-opus-4-5-20251101", "anthropic/claude-opus-4-5"),
        ("bedrock/us.anthropic.claude-3-5-sonnet-20241022-v2:0", "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0"),
        ("openai/gpt-4o-2024-11-20", "openai/gpt-4.1"),
        ("google/gemini-2.5-flash-preview-09-2025", "google/gemini-2.5-flash"),
        ("google/gemini-2.5-pro", "google/gemini-3-pro-preview"),
        ("deepseek/deepseek-v3", "deepseek/deepseek-v3.1"),
        ("groq/llama-3.1-405b", "groq/llama-3.3-70b-versatile"),
        ("ollama/qwen2.5:72b", "ollama/qwen3:8b"),
    ],
)
def test_versions_have_an_order(older: str, newer: str) -> None:
    """Dates, sizes and the numbers of hosts are no versions."""
    assert version_of(older) < version_of(newer)


def test_a_model_that_no_provider_has_listed_is_found_by_its_alias() -> None:
    """Without a listing the names in the data are tried."""
    choice = choose_model(
        {"call": "haiku", "parent": "openai/gpt-5"},
        (),
        is_there=lambda handle: handle == "anthropic/claude-haiku-4-5",
        allows=lambda handle: True,
    )

    assert (choice.model, choice.source) == ("anthropic/claude-haiku-4-5", "call")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sonet", "did you mean sonnet"),
        ("nobody/x", "try opus, fable, sonnet"),
        ("gpt-17-mini", "did you mean openai/gpt-4.1-mini or openai/gpt-5-mini"),
    ],
)
def test_an_unknown_model_is_refused(name: str, hint: str) -> None:
    """The error says who named it, and what there is."""
    with pytest.raises(ModelUnknown, match=f"the call says '{name}'.* {hint}") as caught:
        choose({"call": name, "parent": OPUS})

    assert (caught.value.name, caught.value.source) == (name, "call")


def test_a_definition_from_elsewhere_works_without_its_family() -> None:
    """It gets the parent's model and the reason says so; a call that names the family is refused."""
    wishes: dict[ModelSource, str | None] = {"definition": "grok", "parent": OPUS}
    model, source, reason = choose(wishes)

    assert (model, source) == (OPUS, "definition")
    assert reason == "the definition says grok, and none of it is known: the model of the agent that calls"
    with pytest.raises(ModelUnknown, match="the call says 'grok'"):
        choose({**wishes, "call": "grok"})


def test_a_policy_never_steps_up() -> None:
    """A newer model of the family takes the place of none, though the policy allows it."""
    with pytest.raises(ModelForbidden, match="no older one of the family opus"):
        choose({"parent": "anthropic/claude-opus-4-1-20250805"}, allows=lambda handle: "4-5" in handle)


def test_a_model_without_a_family_can_not_step_down() -> None:
    """Nothing takes the place of a model whose family is unknown."""
    with pytest.raises(ModelForbidden, match="none that takes its place"):
        choose({"parent": "test/one"}, ("test/one", "test/two"), lambda handle: handle != "test/one")


def test_reasons_are_sentences() -> None:
    """They say who named the model, and why it is this one."""
    reasons = [
        choose({"parent": OPUS})[2],
        choose({"call": "opus", "parent": OPUS})[2],
        choose({"definition": "flash", "parent": OPUS})[2],
        choose({"PERDURE_SUBAGENT_MODEL": "inherit", "call": "opus", "parent": SONNET})[2],
        choose({"call": "opus", "parent": OPUS}, allows=lambda handle: "4-1" in handle)[2],
    ]

    assert reasons == [
        "nothing names another one: the model of the agent that calls",
        "the call says opus, the family of the agent that calls: exactly its model",
        "the definition says flash: the newest of the family flash that is known, at google",
        "PERDURE_SUBAGENT_MODEL says inherit: the model of the agent that calls",
        "the call says opus, the family of the agent that calls: exactly its model; the policy does not allow"
        f" {OPUS}, so anthropic/claude-opus-4-1-20250805",
    ]


def test_families_of_names_that_are_near() -> None:
    """`flash-lite` is no `flash`, and a mini model no `gpt`."""
    names = ("google/gemini-2.5-flash-lite", "openai/gpt-5-mini", "openai/o4-mini", "openai/gpt-4o", "test/x")

    assert [found and found.name for found in map(family_of, names)] == ["flash-lite", "mini", "mini", "gpt", None]
