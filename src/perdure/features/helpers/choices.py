"""The model of a helper as things stand: what settings, call and definition say, and what the policy allows."""

from __future__ import annotations

from perdure.core.errors import ToolError
from perdure.core.models import Models
from perdure.features.helpers.catalog import FORK, Helper
from perdure.features.helpers.routing import ModelChoice, ModelForbidden, ModelSource, choose_model
from perdure.features.plugins.policy import load_policy
from perdure.settings import Settings


def choose_for(helper: Helper, parent: str, models: Models, settings: Settings, *, call: str = "") -> ModelChoice:
    """Return the model of a helper for an agent that runs on `parent`. `call`: the model that the call names.

    Raises: ModelUnknown, ModelForbidden; ToolError: a fork can't have another model; InvalidInput: the policy can't be
        read.
    """
    policy, known = load_policy(settings), models.handles()
    if not helper.is_fork:
        wishes = {
            "PERDURE_SUBAGENT_MODEL": settings.subagent_model,
            "call": call,
            "definition": helper.field("model", ""),
            "parent": parent,
        }
        return choose_model(wishes, known, is_there=known.__contains__, allows=policy.allows_model)  # type: ignore[arg-type]
    if call and call != parent:
        raise ToolError(f"{FORK} runs on your own model, whose cache has all that was said: leave `model` out")
    if not policy.allows_model(parent):
        raise ModelForbidden(parent, None)
    return ModelChoice(parent, "parent", "a fork runs on the model of the agent that calls, which has it in its cache")


def choose_for_command(wish: str, call: str, own: str, models: Models, settings: Settings) -> tuple[str, str]:
    """Return (the model of a command's run, why it is that one) for an agent that runs on `own`.

    Args:
        wish: the model that the definition names; `call`: that of the caller, where it names none. Empty: none.
    Raises: ModelUnknown, ModelForbidden; InvalidInput: the policy can't be read.
    """
    known, allows = models.handles(), load_policy(settings).allows_model
    wishes: dict[ModelSource, str | None] = (
        {"definition": wish, "parent": own} if wish else {"call": call, "parent": own}
    )
    choice = choose_model(wishes, known, is_there=known.__contains__, allows=allows)
    return choice.model, choice.reason.replace("the agent that calls", "the agent")
