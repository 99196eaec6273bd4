"""An agent file without what the agent has forgotten.

Forgetting leaves a text where only `undo` finds it, and where people speak of the agent: in values that blocks had,
facts that are believed no longer, names, schedules, settings. A file goes to others, so it reads there as if the text
was erased. What is in view holds none of it, but where somebody has said it again since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import REDACTED
from perdure.domain.conversations.agent_copies import copy_parts
from perdure.domain.conversations.copy_values import HiddenText
from perdure.features.agent_files.reading import NAME

_SAID_OF_AGENT = ("system", "description", "metadata", "tags")
_CHOSEN = ("name", "secrets", "tool_exec_environment_variables", "messages", *_SAID_OF_AGENT)
"""Fields of an agent that are no settings."""


def hide_forgotten(document: dict[str, Any], forgotten: Sequence[Correction]) -> None:
    """Replace in `document`, an agent file as an object, every text of the `forgotten` corrections."""
    for correction in forgotten:
        if correction.needle != REDACTED:
            _hide(document, HiddenText(correction.needle, correction.created_at))


def _hide(document: dict[str, Any], text: HiddenText) -> None:
    """Replace one forgotten text in the agent file. Messages newer than the forgetting keep it: they say it again."""
    (agent,) = document["agents"]
    settings = {name: value for name, value in agent.items() if name not in _CHOSEN}
    agent |= text.redactor.redact_choices(settings)
    text.redact([agent], _SAID_OF_AGENT)
    text.redact(agent["messages"][:1], ("content",))  # the system message
    text.redact(agent["messages"][1:], ("name", "otid"), text.is_old)
    text.redact(document["blocks"], ("description", "metadata", "tags"))
    text.redact(document["sources"], ("description", "instructions", "metadata"))
    text.redact(document["files"], ("file_name",))
    for copy in document["metadata"][NAME]["agents"].values():
        _hide_in_copy(copy, text)


def _hide_in_copy(copy: dict[str, Any], text: HiddenText) -> None:
    """Replace one forgotten text in `copy`, the part of an agent file that only Perdure reads."""
    copy["settings"] = text.redactor.redact_choices(copy["settings"])
    text.redact(copy["passages"], ("sources", "state_origin"), text.is_old)
    for part in copy_parts():
        if part.name in copy:
            part.hide(copy[part.name], text)
    text.redact(copy["conversations"], ("summary", "description", "options"))
    for conversation in copy["conversations"]:
        text.redact(conversation["messages"], ("name", "otid"), text.is_old)
    for versions in copy["block_values"].values():
        for version in filter(text.is_old, versions[:-1]):  # the last one is the block as it is now
            version["value"] = text.redactor.drop_lines(version["value"])
