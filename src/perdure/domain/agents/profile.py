"""Profiles: the settings of an agent that suit a kind of model. A profile is data; each part is a setting of its own.

An agent's own settings win over those of its profile, and its setting `profile` over what is chosen for its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput
from perdure.core.loops import FREE, loop_of
from perdure.core.models import ModelTraits

FULL: Final = "full"
PROFILE: Final = "profile"
OFFERED_TOOLS: Final = "offered_tools"
PROMPT: Final = "prompt_size"
PASSES: Final = "companion_passes"
"""Where an agent's settings hold the name of its profile, which of its tools models are offered, the size of its base
prompt, and when its companion makes passes."""

PROFILE_SETTINGS: Final = (PROFILE, OFFERED_TOOLS, PROMPT, PASSES)

OFFERS: Final = ("all", "own", "none")
"""Which tools are offered: all, all but the memory tools that agents have from the start, none."""

PROMPTS: Final = ("full", "small")
WAKES: Final = ("due", "asked")

SMALL_WINDOW_TOKENS = 16_000
SMALL_PARAMETERS = 4e9

PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "full": {},
    # What a model of 0.5 to 4 billion parameters is good at is answering from what stands in its prompt.
    "small": {
        PROMPT: "small",
        OFFERED_TOOLS: "own",
        PASSES: "asked",
        "auto_recall": {"budget_tokens": 400},
        "summaries": {"background": False, "author": "code"},
        "max_output_tokens": 512,
        "temperature": 0.3,
    },
}


def choose_profile(agent: Agent, traits: ModelTraits) -> str:
    """Return the name of an agent's profile: its own setting, else the one for its model's traits. An agent whose loop
    or rules rely on tool calls gets the small profile only by its own setting."""
    own = agent.settings.get(PROFILE)
    if isinstance(own, str) and own in PROFILES:
        return own
    if loop_of(agent.agent_type, agent.settings) != FREE or agent.settings.get("tool_rules"):
        return "full"
    return "small" if is_small(traits) else "full"


def is_small(traits: ModelTraits) -> bool:
    """Return whether a model with these traits runs locally and does better with the small profile."""
    window, parameters = traits.window_tokens, traits.parameters
    return traits.local and (
        (window is not None and window < SMALL_WINDOW_TOKENS)
        or (parameters is not None and parameters < SMALL_PARAMETERS)
        or traits.calling == "none"
        # A large model that writes a call as text in the middle of a conversation keeps what it has.
        or (traits.calling == "text" and (traits.by_trial or parameters is None))
    )


def with_profile(agent: Agent, traits: ModelTraits) -> Agent:
    """Return the agent with the settings of its profile under its own. Applied again, nothing changes."""
    name = choose_profile(agent, traits)
    settings = {**PROFILES[name], **agent.settings}
    if not traits.takes_tools:
        settings[OFFERED_TOOLS] = "none"
    return agent if settings == agent.settings else replace(agent, settings=settings)


def check_profile(settings: Mapping[str, Any]) -> None:
    """Check the settings of a profile. Raises: InvalidInput, naming setting and value."""
    names = ((PROFILE, tuple(PROFILES)), (OFFERED_TOOLS, OFFERS), (PROMPT, PROMPTS), (PASSES, WAKES))
    for name, choices in names:
        if (value := settings.get(name)) is not None and value not in choices:
            raise InvalidInput(f"{name} is {value!r:.80}: give {', '.join(choices[:-1])} or {choices[-1]}")
