"""The list of helpers that an agent with `run_helper` reads: in its prompt, and as messages about what has changed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

from perdure.context.sections.envelopes import envelope
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationState
from perdure.core.runs import Prefix
from perdure.core.text.markup import escape_tags
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import MemoryState
from perdure.features.helpers.catalog import LISTED_MAX, RUN_HELPER, load_roster
from perdure.features.plugins.definitions import by_weight
from perdure.storage.tx import Tx

_KEY = "helper:"
"""The beginning of the key of a helper in what a conversation has seen; its name follows, and none in the key of the
line about those that are not listed."""


def memory_versions(tx: Tx, opening: ConversationState) -> Mapping[str, int]:
    """Return key of a helper -> version of its line; empty for an agent without `run_helper`."""
    if not opening.has.get("helpers"):
        return {}
    return {key: zlib.crc32(line.encode("utf-8", "surrogatepass")) for key, line in _lines(tx, opening.agent).items()}


def prefix_section(
    tx: Tx, agent: Agent, versions: Mapping[str, int], inputs: UnitInputs, count_tokens: Callable[[], int]
) -> str:
    """Build the section of the prompt; empty for an agent without helpers."""
    if not any(key.startswith(_KEY) for key in versions):
        return ""
    lines = [f"- {escape_tags(line)}" for key, line in _lines(tx, agent).items() if key in versions]
    return "\n".join(("<helpers>", f"You can call these with {RUN_HELPER}:", *lines, "</helpers>"))


def memory_deltas(
    tx: Tx, agent: Agent, seen: Mapping[str, int], memory: MemoryState, prefix: Prefix, inputs: UnitInputs
) -> Sequence[str]:
    """Build the message about helpers that are new, changed or gone since a log has `seen` them; empty: none is."""
    before = {key for key in seen if key.startswith(_KEY)}
    after = {key: version for key, version in memory.versions.items() if key.startswith(_KEY)}
    changed = {key for key, one in after.items() if seen.get(key) != one and prefix.seen.get(key) != one}
    gone = sorted(name for key in before - after.keys() if (name := key.removeprefix(_KEY)))
    if not changed and not gone:
        return ()
    lines = [line for key, line in _lines(tx, agent).items() if key in changed] if changed else []
    return (envelope("helpers", now=lines or None, gone=gone or None),)


def _lines(tx: Tx, agent: Agent) -> Mapping[str, str]:
    """Return key -> line for the helpers that the agent may call, by name; if there are too many, for the most
    important ones, with a last line about the rest."""
    helpers = load_roster(tx, agent).callable
    shown = {one.name for one in by_weight(helpers.values())[:LISTED_MAX]}
    lines = {f"{_KEY}{name}": helper.line for name, helper in helpers.items() if name in shown}
    if left := len(helpers) - len(shown):
        lines[_KEY] = (
            f"{left} more are not listed: {RUN_HELPER} with a word for what you need as `name` tells the nearest"
        )
    return lines
