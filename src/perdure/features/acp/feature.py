"""Agents in editors, such as Zed, over the Agent Client Protocol."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="acp", verbs={"acp": Noun(modules=("commands",), help="Serve an agent to an editor, such as Zed.")}
)
