"""The index of skills in a prompt: a line for each, and small messages about lines that changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.context.sections.envelopes import envelope
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationState
from perdure.core.runs import Prefix
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import MemoryState
from perdure.features.skills.catalog import build_index, holder_of, is_skill_key, name_of_key
from perdure.storage.tx import Tx

LOCATION = "read_skill"
"""Where the model reads a skill of the index; those of a client have a path of its own there."""


def memory_versions(tx: Tx, opening: ConversationState) -> Mapping[str, int]:
    """Return the versions of the lines of the agent's index; none for an agent that can't read skills."""
    if not opening.has.get("skills"):
        return {}
    return {line.key: line.version for line in build_index(tx, holder_of(tx, opening.agent))}


def status_counts(versions: Mapping[str, int]) -> Mapping[str, int]:
    """Return how many lines the index has."""
    return {"skills": sum(map(is_skill_key, versions))}


def available_skills(tx: Tx, agent: Agent, versions: Mapping[str, int]) -> Sequence[Mapping[str, str]]:
    """Return the lines of the index as the prompt lists skills; none where the memory has no versions of them."""
    if not any(map(is_skill_key, versions)):
        return []
    return [
        {"name": line.name, "description": line.description, "location": LOCATION}
        for line in build_index(tx, holder_of(tx, agent))
    ]


def memory_deltas(
    tx: Tx, agent: Agent, seen: Mapping[str, int], memory: MemoryState, prefix: Prefix, inputs: UnitInputs
) -> Sequence[str]:
    """Build the messages about lines that are new, changed or gone since a log has `seen` them."""
    before = {key: version for key, version in seen.items() if is_skill_key(key)}
    after = {key: version for key, version in memory.versions.items() if is_skill_key(key)}
    if before == after:
        return []
    holder, texts = holder_of(tx, agent), list[str]()
    lines = {line.key: line for line in build_index(tx, holder)}
    for key, version in after.items():
        if version in (before.get(key), prefix.seen.get(key)) or key not in lines:
            continue
        line = lines[key]
        op = "changed" if key in before else "added"
        texts.append(envelope("skill_delta", skill=line.name, op=op, description=line.description, location=LOCATION))
    gone = [name_of_key(tx, holder, key) for key in before if key not in after]
    return [*texts, *(envelope("skill_delta", skill=name, op="removed") for name in gone if name)]
