"""Assemble a request from a prefix, with its texts, the log and a recipe; the canonical form of a request; and the
prompt's sections of blocks and skills.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, cast

from perdure.context.sections.envelopes import (
    MARKER_RULE,
    envelope,
    mark_message,
    mark_text,
    marker_line,
    summary_message,
    without_marker,
)
from perdure.context.sections.stubs import apply_stubs
from perdure.context.sections.words import WEEKDAYS, recalled_in_words, render_in_words, tail_in_words
from perdure.core.blocks import Block
from perdure.core.errors import IllegalLog
from perdure.core.ids import AgentId
from perdure.core.messages import UNSEEN_KINDS, Message, ToolCall, ToolResult, parts_to_json
from perdure.core.models import ModelOptions, ModelRequest, ToolChoice, hide_notice
from perdure.core.runs import Prefix, Recipe
from perdure.core.specs import Tool, ToolSpec
from perdure.core.text.json_strings import compact_json, sorted_json
from perdure.core.text.markup import escape_tags
from perdure.core.text.zones import zone

MEMORY_PLACEHOLDER = "{CORE_MEMORY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCounts:
    """Counts of memory out of view. `tags`: the archive's most used; `more`: further counts, as (name, count)."""

    messages: int = 0
    passages: int = 0
    tags: tuple[str, ...] = ()
    more: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixPlace:
    """Where a prefix is sent: agent, conversation (`default`: the first), and when it was compiled, in local time."""

    agent_id: AgentId
    conversation: str
    compiled_at: datetime


def compile_system(
    base: str,
    blocks: Sequence[Block],
    directories: str = "",
    rules: str = "",
    skills: str = "",
    marker: str = "",
    addition: str = "",
    in_words: bool = False,
) -> str:
    """Build the system text: base prompt, blocks, sections of tool rules, skills and files, what the context engine
    adds, and what a marker means. It is the same in all conversations of an agent.

    A base prompt with `{CORE_MEMORY}` gets memory there, any other at the end.

    Args:
        directories, rules, skills: the sections of files, tool rules and skills; empty: none.
        marker: of the engine's messages; empty: they have none.
        in_words: for a model that the engine speaks to in sentences.
    """
    shown = blocks_in_words(blocks) if in_words else blocks_xml(blocks)
    memory = "\n\n".join(filter(None, (shown, rules, skills, directories, addition_section(addition))))
    if marker:
        memory = "\n\n".join(filter(None, (without_marker(memory, marker), MARKER_RULE)))
    if MEMORY_PLACEHOLDER in base:
        return base.replace(MEMORY_PLACEHOLDER, memory)
    return "\n\n".join(filter(None, (base, memory)))


def compile_opening(counts: MemoryCounts, place: PrefixPlace, *, marker: str) -> str:
    """Build the opening, which differs between conversations: the prefix's place, counts of memory, the marker."""
    if counts.tags:
        tags = [without_marker(tag, marker) if marker else tag for tag in counts.tags]
        counts = replace(counts, tags=tuple(tags))
    return _metadata_section(counts, place, marker)


def addition_section(addition: str) -> str:
    """Return what a context engine adds to the system text; empty if that is nothing."""
    return f"<context_engine>\n{escape_tags(addition)}\n</context_engine>" if addition else ""


def compile_tools(
    tools: Sequence[Tool], engine: Sequence[ToolSpec] = (), client: Sequence[ToolSpec] = ()
) -> tuple[Mapping[str, Any], ...]:
    """Build the tools for the model: the agent's own by name, then those that the caller runs, then the engine's.

    An agent without tools gets none of the engine's: its model may not know how to call any. The agent's tool replaces
    an engine tool of the same name, and the caller's tool replaces any other.
    """
    client_specs = {spec.name: spec for spec in client}
    own = sorted((tool.spec for tool in tools if tool.spec.name not in client_specs), key=lambda spec: spec.name)
    own += [client_specs[name] for name in sorted(client_specs)]
    names = {spec.name for spec in own}
    offered = [spec for spec in engine if spec.name not in names] if own else []
    return tuple(
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
        for spec in (*own, *offered)
    )


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return the text by which the tokens of tools are counted."""
    return compact_json(tools) if tools else ""


def _metadata_section(counts: MemoryCounts, place: PrefixPlace, marker: str) -> str:
    """Render the section about memory out of view: where the prefix is sent, the counts, and the marker if any."""
    lines = [
        *_place_lines(place),
        f"- {counts.messages} messages are in recall memory (conversation_search finds them)",
        f"- {counts.passages} passages are in archival memory (archival_memory_search finds them)",
    ]
    if counts.tags:
        lines.append("- archival memory tags: " + ", ".join(counts.tags))
    if marker:
        lines.append(marker_line(marker))
    return "\n".join(("<memory_metadata>", *lines, "</memory_metadata>"))


def _place_lines(place: PrefixPlace) -> list[str]:
    """Return the lines about agent, conversation and time."""
    at = place.compiled_at
    # `%I` and `%p` of `strftime` would use the process's locale.
    hour, half = (at.hour - 1) % 12 + 1, "AM" if at.hour < 12 else "PM"
    time = f"{at.date().isoformat()} {hour:02}:{at.minute:02}:{at.second:02} {half} {at:%Z%z}"
    return [
        f"- AGENT_ID: {place.agent_id}",
        f"- CONVERSATION_ID: {place.conversation}",
        f"- System prompt last recompiled: {time}",
    ]


_NONE: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class View:
    """The model's view of a conversation: a prefix and the log rows that follow it, always legal.

    A view only grows; a new prefix begins a new view. Only added rows are checked and digested, so that a long view
    costs no more to extend than a short one.

    Args:
        stubs: row number -> characters, for rows that are shown in part.
        rows: the rows that follow the prefix, whole.
        messages: the messages of the request: the summary, the pinned rows, then the rows, cut where they are
            stubs; the engine's have the prefix's marker.
        day: the newest date that a message of a person tells, where the engine speaks in sentences.
    """

    prefix: Prefix
    stubs: Mapping[int, int]
    pinned: tuple[Message, ...]
    rows: tuple[Message, ...]
    messages: tuple[Message, ...]
    day: date | None = field(compare=False, repr=False)
    _digest: Any = field(compare=False, repr=False)  # of hashlib: all bytes so far

    @classmethod
    def of(cls, prefix: Prefix, pinned: Sequence[Message] = (), stubs: Mapping[int, int] = _NONE) -> View:
        """Return the view of a prefix without rows."""
        shown, day = _visible_rows(pinned, prefix, stubs, None)
        first_messages = (*((summary_message(prefix),) if prefix.summary else ()), *shown)
        head = _head_bytes(prefix.tools, prefix.system, prefix.opening)
        digest = hashlib.sha256(head + _message_bytes(first_messages))
        return cls(prefix, stubs, tuple(pinned), (), first_messages, day, digest)

    @property
    def next_seq(self) -> int:
        """The first sequence number that is not in this view."""
        return self.rows[-1].seq + 1 if self.rows else self.prefix.from_message_seq

    def following(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the conversation's messages after the last one of the view; none if numbers between are missing.

        An agent's rows are numbered without gaps, so a gap is a row of another conversation, or one that the caller
        has not read.
        """
        seq = self.next_seq
        rows = [message for message in messages if message.seq >= seq]
        return rows if rows and rows[0].seq == seq and rows[-1].seq == seq + len(rows) - 1 else ()

    def with_rows(self, rows: Sequence[Message]) -> View:
        """Return the view with these rows after its own. Raises: IllegalLog."""
        if not rows:
            return self
        check_legal(rows)
        visible, day = _visible_rows(rows, self.prefix, self.stubs, self.day)
        digest = self._digest.copy()
        digest.update(_message_bytes(visible))
        return View(self.prefix, self.stubs, self.pinned, (*self.rows, *rows), (*self.messages, *visible), day, digest)

    def request(self, model: str, *messages: Message, **fields: Any) -> ModelRequest:
        """Return the request that shows this view, and these messages after it."""
        return ModelRequest(
            model=model,
            system=self.prefix.system,
            tools=self.prefix.tools,
            messages=(*self.messages, *messages) if messages else self.messages,
            opening=self.prefix.opening,
            in_words=bool(self.prefix.words_zone),
            **fields,
        )

    def digest(self, tail: str) -> str:
        """Return `digest_of` the request with this view and this tail."""
        digest = self._digest.copy()
        digest.update(_tail_bytes(tail))
        hexadecimal: str = digest.hexdigest()
        return hexadecimal


def _visible_rows(
    rows: Sequence[Message], prefix: Prefix, stubs: Mapping[int, int], day: date | None
) -> tuple[list[Message], date | None]:
    """Return the rows as requests with this prefix show them, and the newest date mentioned so far.

    Args:
        stubs: row number -> characters, for rows that are shown in part.
        day: the newest date that rows before these tell; None: none does.
    """
    shown: list[Message] = []
    for row in rows:
        if row.kind in UNSEEN_KINDS:
            continue
        message = apply_stubs(hide_notice(row) if prefix.hides_notice else row, stubs)
        if prefix.words_zone:
            message, day = render_in_words(message, day, prefix.words_zone)
        shown.append(mark_message(message, prefix.marker) if prefix.marker else message)
    return shown, day


def assemble(model: str, view: View, recipe: Recipe, *, options: ModelOptions | None = None) -> ModelRequest:
    """Build the request of a recipe; `view` reaches from its prefix to `recipe.upto_message_seq`. The recipe's tool
    rules override the agent's options, except the choice of no tool at all."""
    options = options or ModelOptions()
    if recipe.single_calls:
        options = replace(options, parallel_tool_calls=False)
    if recipe.tool_choice is not None and options.tool_choice != "none":
        options = replace(options, tool_choice=cast("ToolChoice", recipe.tool_choice))
    return view.request(model, tail=recipe.tail, options=options)


def check_legal(messages: Sequence[Message]) -> None:
    """Check that exactly one result follows every call, before any other message. Raises: IllegalLog."""
    open_calls: set[str] = set()
    for message in messages:
        if message.kind in UNSEEN_KINDS:  # answers to calls stand before their results, in rows of their own
            continue
        if open_calls and message.role != "tool":
            raise IllegalLog(f"{message.id} stands between call {min(open_calls)!r} and its result")
        for part in message.parts:
            match part:
                case ToolResult(call_id=call_id):
                    if call_id not in open_calls:
                        raise IllegalLog(
                            f"{message.id} has a result for {call_id!r}, which was not asked or answered twice"
                        )
                    open_calls.remove(call_id)
                case ToolCall(call_id=call_id):
                    if call_id in open_calls:
                        raise IllegalLog(f"{message.id} has two calls with the id {call_id!r}")
                    open_calls.add(call_id)
    if open_calls:
        raise IllegalLog(f"call {min(open_calls)!r} has no result")


def canonical(request: ModelRequest) -> bytes:
    """Return the canonical form of a request, one JSON line for each part. Equal bytes mean equal requests."""
    head = _head_bytes(request.tools, request.system, request.opening)
    return head + _message_bytes(request.messages) + _tail_bytes(request.tail)


def digest_of(request: ModelRequest) -> str:
    """Return the SHA-256 of the canonical form, in hexadecimal digits, as a recipe records it."""
    return hashlib.sha256(canonical(request)).hexdigest()


def _head_bytes(tools: Sequence[Mapping[str, Any]], system: str, opening: str) -> bytes:
    """Return the first bytes of a request: tools, system text and, if there is one, the opening."""
    texts = ({"system": system}, *(({"opening": opening},) if opening else ()))
    lines = [sorted_json(line) for line in (*({"tool": tool} for tool in tools), *texts)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def _message_bytes(messages: Sequence[Message]) -> bytes:
    lines = [
        f'{{"role":"{message.role}","kind":"{message.kind}","parts":{parts_to_json(message.parts)}}}\n'
        for message in messages
    ]
    return "".join(lines).encode("utf-8", "surrogatepass")


def _tail_bytes(tail: str) -> bytes:
    """Return the line of the tail; nothing for an empty one."""
    return f"{sorted_json({'tail': tail})}\n".encode("utf-8", "surrogatepass") if tail else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailNotes:
    """What a tail says about the agent's own work: its working notes, a line for each of its newest steps, oldest
    first, and what it should know now: that its window is nearly full, or that it makes no progress."""

    checkpoint: str = ""
    recent_steps: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


NO_NOTES = TailNotes()


def tail(
    now: datetime,
    timezone: str,
    counts: MemoryCounts,
    recalled: str = "",
    *,
    prefix: Prefix,
    notes: TailNotes = NO_NOTES,
) -> str:
    """Build the volatile tail: the agent's local date, current counts, what it should know about its own work, and the
    recalled text of the newest message. In sentences it has no date, which messages tell, and no counts.

    The recipe stores it, not the log.
    """
    if prefix.words_zone:
        checkpoint = f"Your working notes:\n{notes.checkpoint}" if notes.checkpoint else ""
        steps = "\n".join(("Your newest steps:", *notes.recent_steps)) if notes.recent_steps else ""
        return tail_in_words([*filter(None, (checkpoint, steps)), *notes.notices], recalled)
    local = now.astimezone(zone(timezone))
    text = envelope(
        "context_status",
        date=local.date().isoformat(),
        weekday=WEEKDAYS[local.weekday()],
        time=f"{local.hour:02}:{local.minute:02}",
        timezone=timezone,
        recall_messages=counts.messages,
        archival_passages=counts.passages,
        **dict(counts.more),
        working_checkpoint=notes.checkpoint or None,
        recent_steps=list(notes.recent_steps) or None,
        notices=list(notes.notices) or None,
        recalled=recalled or None,
    )
    return mark_text(text, prefix.marker)


def parse_recalled(tail_text: str) -> str:
    """Return the recalled text in a tail, an envelope or sentences; empty if there is none."""
    if not tail_text.startswith("{"):
        return recalled_in_words(tail_text)
    if '"recalled": ' not in tail_text:
        return ""
    text = json.loads(tail_text).get("recalled", "")
    return text if isinstance(text, str) else ""


def blocks_xml(blocks: Sequence[Block]) -> str:
    """Render the blocks in their order, each with description, `chars_current` and `chars_limit`; empty for none."""
    if not blocks:
        return ""
    labels = frozenset(block.label for block in blocks)
    rendered = "\n\n".join(_block_xml(block, labels) for block in blocks)
    return f"<memory_blocks>\nThese blocks are your core memory, always in view:\n\n{rendered}\n</memory_blocks>"


def blocks_in_words(blocks: Sequence[Block]) -> str:
    """Render the blocks that hold something, each as its label and its text; empty for none."""
    # Indented, so that no value can begin another note.
    values = ((block.label, block.value.strip().replace("\n", "\n  ")) for block in blocks)
    notes = "\n".join(f"{label}: {value}" for label, value in values if value)
    return f"Your notes:\n{notes}" if notes else ""


def _block_xml(block: Block, labels: Set[str]) -> str:
    """Render one block; `labels`: those of all blocks, whose tags must not appear in its text."""
    metadata = [f"- chars_current={len(block.value)}", f"- chars_limit={block.limit_chars}"]
    if block.read_only:
        metadata.insert(0, "- read_only=true")
    if block.metadata and block.is_protected:
        metadata.insert(0, "- protected=true")
    description = escape_tags(block.description or f"What belongs under {block.label}.", labels)
    value = escape_tags(block.value, labels)
    return "\n".join(
        (
            f"<{block.label}>",
            "<description>",
            description,
            "</description>",
            "<metadata>",
            *metadata,
            "</metadata>",
            "<value>",
            value,
            "</value>",
            f"</{block.label}>",
        )
    )


NOTE = (
    "Skills that the environment of this request has: instructions for a kind of work, which are not shown here."
    " Where one fits, read it at its location with your tools before you begin."
)


def skills_section(skills: Sequence[Mapping[str, Any]]) -> str:
    """Render the section, a line for each skill (`name`, `description`, `location`), sorted by name; empty for none."""
    if not skills:
        return ""
    lines = [
        json.dumps({key: skill[key] for key in ("name", "description", "location")}, ensure_ascii=False)
        for skill in sorted(skills, key=lambda skill: (str(skill["name"]), str(skill["location"])))
    ]
    return "\n".join(("<available_skills>", NOTE, *map(escape_tags, lines), "</available_skills>"))
