"""Prefixes of requests: when to rewrite them, how to compile them, and which memory has changed since then."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from perdure.context.prompts import base_prompt
from perdure.context.sections.assemble import (
    MemoryCounts,
    PrefixPlace,
    addition_section,
    compile_opening,
    compile_system,
    compile_tools,
    skills_section,
    tools_text,
)
from perdure.context.sections.envelopes import (
    is_block_key,
    mark_text,
    memory_deltas,
    new_marker,
    summary_section,
    text_for_clients,
    versions_of,
)
from perdure.context.sections.tool_rules import tool_rules_section
from perdure.context.sections.words import envelope_in_words
from perdure.context.window.budget import summary_tokens
from perdure.context.window.leaves import COLD_AFTER
from perdure.core.agents import Agent
from perdure.core.blocks import ERROR_PATTERNS, WORKING_CHECKPOINT, Block
from perdure.core.conversations import GRAPH_KEY, Conversation, ConversationState, SystemMessage, system_message_id
from perdure.core.errors import NotFound
from perdure.core.features import Point
from perdure.core.ids import BlockId
from perdure.core.loops import loop_of
from perdure.core.messages import SEND_MESSAGE
from perdure.core.models import EXTRACTIVE, Models
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Prefix, PrefixChange, Run, compare_parts
from perdure.core.text.json_strings import sorted_json
from perdure.core.text.zones import zone
from perdure.core.tools.engine_specs import ARCHIVAL_TOOLS, CHECKPOINT_TOOL, CONTEXT_TOOL_SPECS, DEFAULT_TOOLS
from perdure.core.tools.rules import rules_in
from perdure.domain.agents.options import CONTEXT_ENGINE
from perdure.domain.agents.profile import OFFERED_TOOLS, PROMPT, choose_profile
from perdure.engine.approvals.answers import client_skills, client_specs
from perdure.engine.ports import UnitInputs, as_requested
from perdure.storage.tx import Tx

MEMORY_VERSIONS: Point[[Tx, ConversationState], Mapping[str, int]] = Point("memory_versions")
"""What else belongs to an agent's memory, with its versions, of which a log has to show changes."""
PREFIX_SECTION: Point[[Tx, Agent, Mapping[str, int], UnitInputs, Callable[[], int]], str] = Point("prefix_section")
"""A section of the system text, by the versions of the memory; called is what counts the tokens of all else."""
STATUS_COUNTS: Point[[Mapping[str, int]], Mapping[str, int]] = Point("status_counts")
"""What else the status at the end of requests counts, by name: of the versions of the memory."""
MEMORY_DELTAS: Point[[Tx, Agent, Mapping[str, int], MemoryState, Prefix, UnitInputs], Sequence[str]] = Point(
    "memory_deltas"
)
"""Texts that bring a log from the versions that it has seen to those of the memory, behind this prefix."""
AVAILABLE_SKILLS: Point[[Tx, Agent, Mapping[str, int]], Sequence[Mapping[str, str]]] = Point("available_skills")
"""Skills beside those of the caller, each with name, description and location, by the versions of the memory."""

_OF_ONE_MODEL = ("context_window_tokens", "max_output_tokens", "reasoning_effort", "max_reasoning_tokens", "extra")
"""Settings whose values another model may refuse, or not have room for."""

_FORM = ("words", "profile")
"""The parts of a prefix that `_form` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """The memory of an agent at one moment: the version of each block, folder and open file by its id, that of the
    newest change of a fact by a person, and how much is out of view."""

    versions: Mapping[str, int]
    counts: MemoryCounts


def agent_of_run(agent: Agent, run: Run, models: Models) -> Agent:
    """Return the agent as this run's model calls see it. Settings for one model only are not for another."""
    options = run.options
    if options.model is not None and options.model != agent.model:
        settings = {name: value for name, value in agent.settings.items() if name not in _OF_ONE_MODEL}
        agent = replace(agent, model=options.model, settings=settings)
    if options.settings or options.logprobs or options.token_ids:
        agent = replace(agent, settings={**agent.settings, **options.model_settings})
    return as_requested(agent, models)


def prefix_of_run(prefix: Prefix, run: Run, counter: TokenCounter | None = None) -> Prefix:
    """Return the prefix with the run's own system text, if any. `counter`: counts its tokens; None: they stay."""
    system = run.options.system
    if system is None:
        return prefix
    tokens = prefix.tokens if counter is None else prefix.tokens - counter.count(prefix.system) + counter.count(system)
    return replace(prefix, system=system, tokens=tokens)


def current_prefix(tx: Tx, conversation: Conversation, inputs: UnitInputs) -> Prefix | None:
    """Return the conversation's prefix, that of the cached view if it is still the same; None: it has none yet."""
    cached = inputs.cached_view
    if cached is not None and cached.prefix.seq == conversation.prefix_seq:
        return cached.prefix
    return None if conversation.prefix_seq is None else tx.prefixes.get(conversation.agent_id, conversation.prefix_seq)


def read_memory(tx: Tx, opening: ConversationState) -> MemoryState:
    """Return the versions and counts of the agent's memory now."""
    versions = opening.blocks
    for feature_versions in MEMORY_VERSIONS(tx, opening) if opening.has else ():
        versions = {**versions, **feature_versions}
    more = _count_rules(tx, opening) if opening.has_rules else {}
    for counted in STATUS_COUNTS(versions) if opening.has else ():
        more = {**more, **counted}
    shown = tuple((name, count) for name, count in more.items() if count)
    counts = MemoryCounts(messages=opening.message_count, passages=opening.passages, more=shown)
    return MemoryState(versions=versions, counts=counts)


def _count_rules(tx: Tx, opening: ConversationState) -> Mapping[str, int]:
    """Return how many lines the blocks have that only a person changes, and those about how calls fail."""
    blocks = tx.blocks.list_by_agent(opening.agent.id, opening.conversation.seq)
    patterns = [block for block in blocks if block.label == ERROR_PATTERNS]
    rules = [block for block in blocks if block.is_protected and block not in patterns]
    return {"rules": sum(map(_count_lines, rules)), "error_patterns": sum(map(_count_lines, patterns))}


def _count_lines(block: Block) -> int:
    """Return how many lines of a block are not blank."""
    return sum(bool(line.strip()) for line in block.value.splitlines())


def rewrite_reason(
    tx: Tx,
    agent: Agent,
    conversation: Conversation,
    memory: MemoryState,
    current: Prefix | None,
    *,
    client_tools: str | None,
    inputs: UnitInputs,
) -> str | None:
    """Return why the conversation's prefix must be rewritten, or may be at no cost; None: it is sent again.

    Compaction rewrites it for other reasons, see `engine.compaction`.

    Args:
        client_tools: the key of the tools and skills that the caller of this run sent.
    """
    if current is None:
        return "reset" if conversation.first_seq > 0 else "first"
    if current.settings_revision != agent.settings_revision:
        return "summary" if _has_revised_summary(tx, current) else "settings"
    addition = "" if agent.settings.get(CONTEXT_ENGINE) is None else inputs.engines.of(agent).addition
    if addition and addition_section(addition) not in current.system:  # the engine was made after it, or is newer
        return "settings"
    if current.client_tools != client_tools:
        return "tools"
    if not current.marker and not current.words_zone:
        return "marker"
    if _form(agent, inputs.models) != {name: current.parts[name] for name in _FORM if name in current.parts}:
        return "settings"
    # A rewrite would bring it up to date.
    if current.seen != memory.versions and current.seen != _in_prefix(memory.versions):
        last_used_at = tx.steps.find_last_time(agent.id)
        if last_used_at is None or inputs.now - last_used_at > COLD_AFTER:
            return "cache_cold"
    return None


def _has_revised_summary(tx: Tx, prefix: Prefix) -> bool:
    """Whether a summary in the prefix was written again since, because a message behind it was changed."""
    nodes = tx.nodes.list_by_seqs(prefix.agent_id, prefix.conversation_seq, prefix.nodes)
    if not any(node.revised_at is not None and node.revised_at >= prefix.created_at for node in nodes):
        return False
    return _summary_text(nodes, prefix.tools, prefix.marker, in_words=bool(prefix.words_zone)) != prefix.summary


def _summary_text(
    nodes: Sequence[SummaryNode], tools: Sequence[Mapping[str, Any]], marker: str, *, in_words: bool
) -> str:
    """Return the summary section as a request shows it; empty for no nodes. `tools`: of the request."""
    summary = summary_section(nodes, can_open=bool(tools))
    return envelope_in_words(summary) if in_words else mark_text(summary, marker) if summary else ""


def _form(agent: Agent, models: Models) -> dict[str, str]:
    """Return the settings that the form of requests depends on, as parts of a prefix: the time zone, if the model is
    addressed in sentences; the profile, unless it is the full one."""
    traits = models.traits(agent.model)
    profile = choose_profile(agent, traits)
    return ({"words": agent.timezone} if traits.plain else {}) | ({} if profile == "full" else {"profile": profile})


def _in_prefix(versions: Mapping[str, int]) -> Mapping[str, int]:
    """Return the block versions that a prefix shows: all but those of facts."""
    return {key: version for key, version in versions.items() if not key.startswith(GRAPH_KEY)}


def store_prefix(tx: Tx, conversation: Conversation, memory: MemoryState, prefix: Prefix) -> Prefix:
    """Store a compiled prefix, with which the conversation's requests begin from now on and which clients are shown.
    Return it with its number, and the differences from the one before."""
    if conversation.prefix_seq is not None:
        before = tx.prefixes.get(prefix.agent_id, conversation.prefix_seq)
        prefix = replace(prefix, changes=(*prefix.changes, *_list_changes(tx, before, prefix)))
    prefix = tx.prefixes.add(prefix)
    tx.system_messages.put(build_system_message(conversation, prefix))
    # What the log has shown stays as it was: an older delta or result may be in view behind this prefix, and what is
    # said last counts, so what it shows is said once more behind them.
    seen = memory.versions if conversation.prefix_seq is None else conversation.seen
    tx.conversations.put_seen_versions(prefix.agent_id, conversation.seq, seen, prefix=prefix)
    return prefix


_TAGS_MAX = 20


def _list_tags(tx: Tx, agent: Agent) -> tuple[str, ...]:
    """Return the most used tags of the agent's archives."""
    tags: dict[str, None] = {}
    for archive in tx.archives.list_by_agent(agent.id):
        tags |= dict.fromkeys(tag for tag, _ in tx.archives.tags(archive.id))
        if len(tags) >= _TAGS_MAX:
            break
    return tuple(tags)[:_TAGS_MAX]


def _list_changes(tx: Tx, before: Prefix, prefix: Prefix) -> Iterator[PrefixChange]:
    """Yield what is different between two prefixes of a conversation, and the messages in view that were revised."""
    for change in compare_parts(before.parts, prefix.parts):
        block_id, _, version = prefix.parts.get(f"block:{change.name}", "").partition("@")
        if change.what == "block" and version:
            author = tx.blocks.version(BlockId(block_id), int(version)).author
            change = replace(change, by=author.kind if author.run_id is None else f"{author.kind} in {author.run_id}")
        yield change
    if before.settings_revision != prefix.settings_revision:
        for seq in tx.prefixes.list_revised(before):
            yield PrefixChange("message", message_handle(seq), "revised")
        kept = [seq for seq in prefix.nodes if seq in before.nodes]
        for node in tx.nodes.list_by_seqs(prefix.agent_id, prefix.conversation_seq, kept):
            if node.revised_at is not None and node.revised_at >= before.created_at:
                yield PrefixChange("summaries", node_handle(node.seq), "revised")


def build_system_message(
    conversation: Conversation, prefix: Prefix, compiled_at: datetime | None = None
) -> SystemMessage:
    """Build the conversation's system message as `prefix` has it. `compiled_at`: the time in it; None: the prefix's."""
    return SystemMessage(
        id=system_message_id(conversation.id),
        agent_id=conversation.agent_id,
        conversation_seq=conversation.seq,
        text=text_for_clients(prefix),
        compiled_at=compiled_at or prefix.created_at,
        created_at=prefix.created_at,
    )


def compile_prefix(
    tx: Tx,
    agent: Agent,
    conversation: Conversation,
    memory: MemoryState,
    inputs: UnitInputs,
    *,
    reason: str,
    from_seq: int,
    pinned: Sequence[int] = (),
    nodes: Sequence[SummaryNode] = (),
    client_tools: str | None = None,
    marker: str = "",
    compiled_at: datetime | None = None,
    blocks: Sequence[Block] | None = None,
) -> Prefix:
    """Compile a prefix, without a number and not stored.

    Args:
        marker: of the prefix before; it stays as long as neither memory nor tools contain it.
        compiled_at: the time that the system text names; None: now.
        blocks: those to show; None: the conversation's, as they are now.
    """
    counter, agent = inputs.counter, as_requested(agent, inputs.models)
    form = _form(agent, inputs.models)
    in_words = "words" in form
    blocks = tx.blocks.list_by_agent(agent.id, conversation.seq) if blocks is None else blocks
    counts = replace(memory.counts, tags=_list_tags(tx, agent))
    rules = tool_rules_section(rules_in(agent.settings))
    skills = skills_section(_list_skills(tx, agent, memory, client_tools))
    tools = _offered_tools(tx, agent, client_tools)
    if any(tool["name"] == CHECKPOINT_TOOL for tool in tools):  # the tail has it
        blocks = [block for block in blocks if block.label != WORKING_CHECKPOINT]
    own, size = agent.system, agent.settings.get(PROMPT, "full")
    base = base_prompt(agent.agent_type, size, in_words=in_words) if own is None else own
    addition = inputs.engines.of(agent).addition
    place = PrefixPlace(
        agent_id=agent.id,
        conversation=conversation.id if conversation.seq else "default",
        compiled_at=(compiled_at or inputs.now).astimezone(zone(agent.timezone)),
    )
    compiled = partial(compile_system, base, blocks, rules=rules, skills=skills, addition=addition, in_words=in_words)
    if in_words:
        marker = ""
    elif not marker or marker in compiled() or marker in tools_text(tools):  # others know it: it marks nothing any more
        marker = new_marker(inputs.ids)
    compiled = partial(compiled, marker=marker)
    system = compiled()
    # Without tools, nothing can be done with the ids and counts in it.
    opening = compile_opening(counts, place, marker=marker) if marker or tools else ""
    summary = _summary_text(nodes, tools, marker, in_words=in_words)

    sections = PREFIX_SECTION(
        tx, agent, memory.versions, inputs, lambda: counter.count(system) + counter.count(tools_text(tools))
    )
    if directories := "\n\n".join(filter(None, sections)):
        system = compiled(directories)
    return Prefix(
        agent_id=agent.id,
        seq=0,
        conversation_seq=conversation.seq,
        reason=reason,
        system=system,
        tools=tools,
        seen=_in_prefix(memory.versions),
        from_message_seq=from_seq,
        settings_revision=agent.settings_revision,
        tokens=counter.count(system) + counter.count(tools_text(tools)) + summary_tokens(counter, opening, summary),
        opening=opening,
        summary=summary,
        nodes=tuple(node.seq for node in nodes),
        pinned=tuple(pinned),
        client_tools=client_tools,
        marker=marker,
        hides_notice=agent.model != EXTRACTIVE,
        parts=_name_parts(agent, base, tools, blocks, skills=skills, directories=directories) | form,
        created_at=inputs.now,
    )


def _list_skills(tx: Tx, agent: Agent, memory: MemoryState, client_tools: str | None) -> Sequence[Mapping[str, Any]]:
    """Return the skills that a prompt lists: those of the caller, and the agent's own."""
    of_caller = [] if client_tools is None else client_skills(tx, agent.id, client_tools)
    return [*of_caller, *(skill for more in AVAILABLE_SKILLS(tx, agent, memory.versions) for skill in more)]


def _offered_tools(tx: Tx, agent: Agent, client_tools: str | None) -> tuple[Mapping[str, Any], ...]:
    """Return the tools offered to the agent's model by its profile: all, only those given to the agent, or none."""
    offer = agent.settings.get(OFFERED_TOOLS, "all")
    if offer == "none":
        return ()
    if agent.settings.get("tool_rules"):  # they may demand any of them
        offer = "all"
    left_out = {*DEFAULT_TOOLS.get(agent.agent_type, ()), *ARCHIVAL_TOOLS} - {SEND_MESSAGE} if offer == "own" else ()
    tools = [tool for tool in tx.tools.list_by_agent(agent.id) if tool.name not in left_out]
    client = () if client_tools is None else tuple(client_specs(tx, agent.id, client_tools).values())
    loop = loop_of(agent.agent_type, agent.settings)
    engine = tuple(CONTEXT_TOOL_SPECS.values()) if offer == "all" else ()
    return tuple(map(loop.offer, compile_tools(tools, engine, client)))


def _name_parts(
    agent: Agent,
    base: str,
    tools: Sequence[Mapping[str, Any]],
    blocks: Sequence[Block],
    *,
    skills: str,
    directories: str,
) -> dict[str, str]:
    """Return what a prefix is made of: `kind:name` -> a value, a version or a digest; none of a text of memory."""
    parts = {"model": agent.model, "agent type": agent.agent_type}
    parts |= {f"setting:{name}": _short_digest(value) for name, value in sorted(agent.settings.items())}
    parts["system prompt"] = _short_digest(base)
    parts |= {f"tool:{tool['name']}": _short_digest(tool) for tool in tools}
    if skills:
        parts["skills"] = _short_digest(skills)
    parts |= {f"block:{block.label}": f"{block.id}@{block.version}" for block in blocks}
    if directories:
        parts["files"] = _short_digest(directories)
    return parts


def _short_digest(value: object) -> str:
    """Return 12 hexadecimal digits, which differ for different JSON values."""
    return hashlib.sha256(sorted_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def recompile_prefix(
    tx: Tx,
    agent: Agent,
    conversation: Conversation,
    memory: MemoryState,
    inputs: UnitInputs,
    current: Prefix | None,
    *,
    reason: str,
    client_tools: str | None,
    compiled_at: datetime | None = None,
    from_seq: int | None = None,
) -> Prefix:
    """Compile the prefix that takes the place of `current` before the same rows; without one, the conversation's first.
    `from_seq`: the first row behind it, with nothing of what was in view before; None: the same rows."""
    kept = current if from_seq is None else None
    if from_seq is None:
        from_seq = conversation.first_seq if kept is None else kept.from_message_seq
    return compile_prefix(
        tx,
        agent,
        conversation,
        memory,
        inputs,
        reason=reason,
        from_seq=from_seq,
        pinned=() if kept is None else kept.pinned,
        nodes=() if kept is None else tx.nodes.list_by_seqs(agent.id, conversation.seq, kept.nodes),
        client_tools=client_tools,
        marker="" if current is None else current.marker,
        compiled_at=compiled_at,
    )


def delta_texts(
    tx: Tx,
    agent: Agent,
    seen: Mapping[str, int],
    memory: MemoryState,
    prefix: Prefix,
    inputs: UnitInputs,
    *,
    folded: bool = False,
) -> tuple[str, ...]:
    """Return the texts of memory deltas: they bring a log from the versions it has `seen` to those of `memory`.

    Args:
        prefix: of the conversation.
        folded: the prefix shows the new values already, so the deltas only say that these hold now.
    """
    blocks = tx.blocks.list_by_agent(agent.id, prefix.conversation_seq)
    seen_blocks = {key: version for key, version in seen.items() if is_block_key(key)}
    labels = _seen_labels(tx, seen_blocks, blocks)
    if any(tool["name"] == CHECKPOINT_TOOL for tool in prefix.tools):  # the tail shows it as it is now
        notes = {block.id for block in blocks if block.label == WORKING_CHECKPOINT}
        notes |= {BlockId(block_id) for block_id, label in labels.items() if label == WORKING_CHECKPOINT}
        blocks = [block for block in blocks if block.id not in notes]
        seen_blocks = {key: version for key, version in seen_blocks.items() if key not in notes}
    texts = memory_deltas(seen_blocks, blocks, labels=labels, folded=folded)
    return (*texts, *(text for more in MEMORY_DELTAS(tx, agent, seen, memory, prefix, inputs) for text in more))


def _seen_labels(tx: Tx, seen: Mapping[str, int], blocks: Sequence[Block]) -> dict[str, str]:
    """Return block id -> the label that the block had when this log last saw it; deleted blocks are left out."""
    now = versions_of(blocks)
    labels: dict[str, str] = {}
    for block_id, version in seen.items():
        if now.get(block_id) != version:
            with contextlib.suppress(NotFound):
                labels[block_id] = tx.blocks.version(BlockId(block_id), version).label
    return labels
