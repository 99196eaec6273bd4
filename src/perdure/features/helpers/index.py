"""The list of helpers that an agent with `run_helper` reads: in its prompt, and as messages about what has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perdure.context.sections.envelopes import envelope
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationState
from perdure.core.runs import Prefix
from perdure.core.text.markup import escape_tags
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import MemoryState
from perdure.features.helpers.catalog import LISTED_MAX, RUN_HELPER, Helper, load_roster
from perdure.storage.tx import Tx

_KEY = "helper:"
"""The beginning of the key of a helper in what a conversation has seen; its name follows."""


def memory_versions(tx: Tx, opening: ConversationState) -> Mapping[str, int]:
    """Return key of a helper -> version of its line; empty for an agent without `run_helper`."""
    if not opening.has.get("helpers"):
        return {}
    return {f"{_KEY}{helper.name}": helper.version for helper in _listed(tx, opening.agent)}


def prefix_section(
    tx: Tx, agent: Agent, versions: Mapping[str, int], inputs: UnitInputs, count_tokens: Callable[[], int]
) -> str:
    """Build the section of the prompt; empty for an agent without helpers."""
    if not any(key.startswith(_KEY) for key in versions):
        return ""
    lines = [f"- {escape_tags(helper.line)}" for helper in _listed(tx, agent) if f"{_KEY}{helper.name}" in versions]
    return "\n".join(("<helpers>", f"You can call these with {RUN_HELPER}:", *lines, "</helpers>"))


def memory_deltas(
    tx: Tx, agent: Agent, seen: Mapping[str, int], memory: MemoryState, prefix: Prefix, inputs: UnitInputs
) -> Sequence[str]:
    """Build the message about helpers that are new, changed or gone since a log has `seen` them; empty: none is."""
    before = {key for key in seen if key.startswith(_KEY)}
    after = {key: version for key, version in memory.versions.items() if key.startswith(_KEY)}
    changed = {key for key, one in after.items() if seen.get(key) != one and prefix.seen.get(key) != one}
    gone = sorted(key.removeprefix(_KEY) for key in before - after.keys())
    if not changed and not gone:
        return ()
    lines = [helper.line for helper in _listed(tx, agent) if f"{_KEY}{helper.name}" in changed] if changed else []
    return (envelope("helpers", now=lines or None, gone=gone or None),)


def _listed(tx: Tx, agent: Agent) -> Sequence[Helper]:
    """Return the first helpers that the agent may call, by name."""
    return list(load_roster(tx, agent).callable.values())[:LISTED_MAX]
