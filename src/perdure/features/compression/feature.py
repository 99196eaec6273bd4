"""What tools return in fewer tokens, and what opens parts of it."""

from perdure.core.features import AgentSetting, Feature, Noun

FEATURE = Feature(
    name="compression",
    verbs={"compress": Noun(modules=("commands",), help="Print a tool's output in fewer tokens, as an agent sees it.")},
    agent_settings={"tool_output": AgentSetting(check="results:check_levels", shape="wire:Levels", keeps_empty=True)},
    points={"show_result": "results:compress_outcome", "look_up": "lookup:expand"},
)
