"""OpenAI's API in front of agents, and of any model with an agent's memory around it."""

from __future__ import annotations

from perdure.core.features import AgentSetting, Feature, TableUse

DEFAULT_FOR_KEY = "default_for_key"
"""The setting of the agent whose memory a key's requests to models get: the key's id."""

FEATURE = Feature(
    name="openai_front",
    routes=("routes", "letta_routes"),
    agent_settings={
        DEFAULT_FOR_KEY: AgentSetting(check="values:check_key_setting", shape="values:KeySetting", stays=True)
    },
    tables=(TableUse(name="openai_histories", key=("digest", "said_in")),),
    points={"error_form": "errors:error_form"},
)
