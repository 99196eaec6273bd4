"""OpenAI's API in front of agents, and of any model with an agent's memory around it."""

from perdure.core.features import AgentSetting, Feature, TableUse

MEMORY_OF = "memory_of"
"""The setting of an agent whose memory the requests of a key to models get: `{"key": id}`."""

FEATURE = Feature(
    name="openai_front",
    routes=("routes", "letta_routes"),
    agent_settings={MEMORY_OF: AgentSetting(check="values:check_key_setting", shape="values:KeySetting", stays=True)},
    services=("open_answers:OpenAnswers",),
    tables=(TableUse(name="openai_histories", key=("digest", "said_in")),),
    points={"error_form": "errors:error_form"},
)
