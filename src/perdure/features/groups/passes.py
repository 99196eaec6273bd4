"""When a pass of a companion is due, what it reads, and its end. All of it follows from what is stored. What a
companion is given is what was said and done in its agent's conversations, as numbered lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Any

from perdure.core.blocks import ERROR_PATTERNS
from perdure.core.errors import NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId, Ids, RunId
from perdure.core.messages import Message, ToolResult
from perdure.core.ports import TokenCounter
from perdure.core.sources import Source
from perdure.core.text.markup import escape_tags
from perdure.core.text.zones import zone
from perdure.core.tools.engine_specs import FINISH_TOOLS
from perdure.domain.provenance.context import range_sources
from perdure.domain.tools.memory_tools import CONTINUATION, READING_TAG
from perdure.engine.ports import UnitInputs
from perdure.features.groups.companions import find_companion, follow_blocks, kind_of_companion, share_archive
from perdure.features.groups.tables import Groups
from perdure.features.groups.units import update_group
from perdure.features.groups.values import FREQUENCY, SLEEPTIME_KINDS, Group, Pass, PassCause, PassOutcome
from perdure.features.groups.work_tables import Passes
from perdure.library.agents.agents import CompanionKind
from perdure.storage.tx import Tx

PASS_TASK: Point[[CompanionKind, str, Sequence[str]], Sequence[str]] = Point("pass_task")
"""What companions of a kind that a feature brings are told to do with what they read, in lines: for the agent of this
name, and the labels of the blocks that both share. They read only where a call of a tool failed."""

TRIES = 5
"""After so many failures in a row a companion waits for its agent's next turns."""

MESSAGES_MAX = 1_000
"""The most messages of one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLimits:
    """The limits of passes.

    Args:
        steps, tokens: the model calls of a pass, and its tokens in and out, unless its group says otherwise.
        retry_s: how long a companion waits after its first failure; each time four times as long.
    """

    steps: int
    tokens: int
    retry_s: float

    def tokens_of(self, group: Group) -> int:
        """Return the most tokens that a pass of this group may use."""
        return self.tokens if group.max_tokens is None else group.max_tokens

    def retry_at(self, failed: Pass) -> datetime | None:
        """When a pass that failed is tried again; None: with the agent's next turns."""
        if failed.ended_at is None or failed.outcome == "cancelled" or failed.failures + 1 >= TRIES:
            return None
        wait_s = 0.0 if failed.outcome == "edited" else self.retry_s * float(4**failed.failures)
        return failed.ended_at + timedelta(seconds=wait_s)


@dataclass(frozen=True, slots=True)
class CompanionState:
    """A companion's group, its newest pass, and how many turns its agent has had since."""

    group: Group
    last: Pass | None
    turns: int


def load_companion(tx: Tx, group: Group) -> CompanionState:
    """Read the newest pass of a group with a companion, and how many turns its agent has had since."""
    assert group.manager_agent_id is not None
    last = tx.of(Passes).find_last(group.manager_agent_id, group.id)
    after = -1 if last is None else last.upto_run_seq
    from_seq = _first_unread_seq(tx, group)
    turns = tx.of(Passes).count_turns(group.manager_agent_id, from_seq=from_seq, after_run_seq=after)
    return CompanionState(group, last, turns)


def with_turns_counter(tx: Tx, group: Group) -> Group:
    """Return the group with `turns_counter`: turns since its companion's last pass, -1 before the first one; groups
    without a companion are unchanged."""
    if group.kind not in SLEEPTIME_KINDS or group.manager_agent_id is None:
        return group
    state = load_companion(tx, group)
    is_new = not state.turns and state.last is None
    return replace(group, turns_counter=-1 if is_new else state.turns % (group.frequency or FREQUENCY))


def load_managed(tx: Tx, agent_ids: Sequence[AgentId]) -> Mapping[AgentId, Mapping[str, Any]]:
    """Agent -> the group that it manages: one with a companion, else the newest. Agents without one are left out."""
    managed = tx.of(Groups).list_managed(agent_ids)
    return {agent_id: {"group": with_turns_counter(tx, group)} for agent_id, group in managed.items()}


def due_cause(tx: Tx, agent_id: AgentId, limits: PassLimits, *, now: datetime) -> PassCause | None:
    """Why a pass of the agent's companion is due; None: none is."""
    if (group := find_companion(tx, agent_id)) is None:
        return None
    state = load_companion(tx, group)
    last = state.last
    if last is not None and last.outcome is None:
        return last.cause  # it goes on
    if last is not None and last.is_full and not last.failed:
        return "rest"
    if last is not None and last.failed and (at := limits.retry_at(last)) is not None and at <= now:
        return last.cause if last.outcome == "edited" else "retry"
    if state.turns >= (group.frequency or FREQUENCY):
        return "turns"
    since = _first_unread_seq(tx, group) - 1 if last is None else last.upto_seq
    return "compaction" if tx.messages.list(agent_id, after_seq=since, kinds=("compaction",), limit=1) else None


def begin_due_pass(tx: Tx, agent_id: AgentId, limits: PassLimits, *, ids: Ids, at: datetime) -> Pass | None:
    """Begin the pass that is due, or return the one under way; None: none is due any more. Raises: NotFound."""
    tx.agents.lock(agent_id)
    cause = due_cause(tx, agent_id, limits, now=at)
    return None if cause is None else begin_pass(tx, agent_id, cause, ids=ids, at=at)


def begin_pass(tx: Tx, agent_id: AgentId, cause: PassCause, *, ids: Ids, at: datetime) -> Pass | None:
    """Store that a pass begins, or return the one under way; None: the agent has no companion, or nothing new for it to
    read. From here on the companion shares the agent's blocks and archive. Raises: NotFound."""
    tx.agents.lock(agent_id)
    if (group := find_companion(tx, agent_id)) is None:
        return None
    last = tx.of(Passes).find_last(agent_id, group.id)
    if last is not None and last.outcome is None:
        return tx.of(Passes).ask(last) if cause == "request" else last
    from_seq = _first_unread_seq(tx, group)
    isolated = tx.of(Passes).list_isolated(agent_id)
    newest = [
        message
        for message in tx.messages.list(
            agent_id, after_seq=from_seq - 1, newest_first=True, limit=MESSAGES_MAX if isolated else 1
        )
        if message.conversation_seq not in isolated
    ]
    if not newest:
        return None
    if _task(tx, group, "", ()) and not _has_failed(tx, agent_id, from_seq, isolated):
        update_group(tx, group.id, {"last_message_id": newest[0].id}, ids=ids, at=at)
        return None
    follow_blocks(tx, agent_id)
    share_archive(tx, group, agent_id, ids=ids, at=at)
    return tx.of(Passes).add(
        Pass(
            agent_id=agent_id,
            group_id=group.id,
            companion_id=group.agent_ids[0],
            cause=cause,
            from_seq=from_seq,
            upto_seq=tx.messages.next_seq(agent_id) - 1,
            last_message_id=newest[0].id,
            upto_run_seq=tx.of(Passes).last_run_seq(agent_id),
            failures=last.failures + 1 if last is not None and last.failed else 0,
            run_id=RunId(ids.new("run")),
            created_at=at,
        )
    )


def _task(tx: Tx, group: Group, agent_name: str, labels: Sequence[str]) -> Sequence[str]:
    """Return the instructions for a companion of a kind that a feature adds; empty for other kinds."""
    kind = kind_of_companion(tx.agents.get(group.agent_ids[0]))
    return [line for lines in PASS_TASK(kind, agent_name, labels) for line in lines]


def _has_failed(tx: Tx, agent_id: AgentId, from_seq: int, isolated: Collection[int]) -> bool:
    """Whether a call failed in the agent's newest messages from `from_seq` on, as far as a pass reads them."""
    rows = tx.messages.list(agent_id, after_seq=from_seq - 1, newest_first=True, kinds=("message",), limit=MESSAGES_MAX)
    return any(_failures([row for row in rows if row.conversation_seq not in isolated]))


def begin_scheduled(tx: Tx, agent_id: AgentId, inputs: UnitInputs) -> RunId | None:
    """Begin a pass by a schedule, see `begin_pass`; return the id of its run."""
    begun = begin_pass(tx, agent_id, "schedule", ids=inputs.ids, at=inputs.now)
    return None if begun is None else begun.run_id


def messages_of_pass(tx: Tx, pass_: Pass) -> Sequence[Message]:
    """The messages that a pass is about, in order; one more than `MESSAGES_MAX` if there are more than that."""
    return tx.messages.list(
        pass_.agent_id,
        after_seq=pass_.from_seq - 1,
        before_seq=pass_.upto_seq + 1,
        kinds=("message",),
        limit=MESSAGES_MAX + 1,
    )


def read_pass(
    tx: Tx, pass_: Pass, messages: Sequence[Message], *, counter: TokenCounter, budget_tokens: int
) -> PassInput:
    """Build what a companion reads in a pass, at most `budget_tokens` of its `messages`. Raises: NotFound."""
    agent, isolated = tx.agents.get(pass_.agent_id), tx.of(Passes).list_isolated(pass_.agent_id)
    labels = {block.id: block.label for block in tx.blocks.list_by_agent(agent.id)}
    shared = tx.blocks.list_versions(pass_.companion_id)
    tools = {tool.spec.name for tool in tx.tools.list_by_agent(pass_.companion_id)}
    shared_labels = [label for block_id, label in labels.items() if block_id in shared]
    built = build_pass_input(
        agent.name,
        shared_labels,
        [message for message in messages[:MESSAGES_MAX] if message.conversation_seq not in isolated],
        zone=zone(agent.timezone),
        counter=counter,
        budget_tokens=budget_tokens,
        finish_tool=next((name for name in FINISH_TOOLS if name in tools), FINISH_TOOLS[0]),
        task=_task(tx, tx.of(Groups).get(pass_.group_id), agent.name, shared_labels),
    )
    if len(messages) > MESSAGES_MAX and not built.is_full:
        built = replace(built, last=messages[MESSAGES_MAX - 1], is_full=True)
    return built


def pass_sources(tx: Tx, pass_: Pass) -> tuple[Source, ...]:
    """What the messages that a companion reads in a pass brought from outside: it is in the companion's context."""
    isolated = tx.of(Passes).list_isolated(pass_.agent_id)
    seqs = [each.seq for each in tx.conversations.list(pass_.agent_id) if each.seq not in isolated]
    return range_sources(tx, pass_.agent_id, seqs, from_seq=pass_.from_seq, upto_seq=pass_.upto_seq)


def narrow_pass(tx: Tx, pass_: Pass, read: PassInput) -> Pass:
    """Limit a pass to the messages up to the last one that fits, which is in `read`; return the pass."""
    if not read.is_full or read.last is None:
        return pass_
    return tx.of(Passes).narrow(pass_, upto_seq=read.last.seq, last_message_id=read.last.id)


def end_pass(tx: Tx, pass_: Pass, outcome: PassOutcome, *, ids: Ids, at: datetime) -> Pass | None:
    """End a pass; its messages count as read, unless it failed. None: it has ended already."""
    tx.agents.lock(pass_.agent_id)
    ended = tx.of(Passes).end(pass_, outcome, at=at)
    if ended is not None and not ended.failed:
        group = find_companion(tx, pass_.agent_id)
        if group is not None and group.id == pass_.group_id:
            update_group(tx, group.id, {"last_message_id": ended.last_message_id}, ids=ids, at=at)
    return ended


def end_pass_of_edited(tx: Tx, message: Message, at: datetime) -> None:
    """End the pass that is reading an edited message, so that nothing is written from its old text; a later pass reads
    its messages again. A pass without a run yet reads the new text anyway. The caller has locked the agent."""
    group = find_companion(tx, message.agent_id)
    pass_ = None if group is None else tx.of(Passes).find_last(message.agent_id, group.id)
    if pass_ is None or pass_.outcome is not None or not pass_.from_seq <= message.seq <= pass_.upto_seq:
        return
    if (found := tx.runs.find_by_key(pass_.companion_id, 0, pass_.key)) is not None:
        tx.runs.request_cancel(found[0].key)
        tx.of(Passes).end(pass_, "edited", at=at)


def _first_unread_seq(tx: Tx, group: Group) -> int:
    """The number of the first message of a group's manager that its companion has not read."""
    if group.last_message_id is None:
        return 0
    try:
        return tx.messages.place(group.last_message_id)[1] + 1
    except NotFound:
        return 0


MESSAGE_CHARS, CALL_CHARS, FAILED_MAX = 8_000, 300, 30
"""Characters that are shown of a message, and of a call or its result; how many failed calls are listed."""


@dataclass(frozen=True, slots=True)
class PassInput:
    """The text for a companion, the last message in it (None: it has none), and whether more follow."""

    text: str
    last: Message | None
    is_full: bool


def build_pass_input(
    agent_name: str,
    labels: Sequence[str],
    messages: Sequence[Message],
    *,
    zone: tzinfo,
    counter: TokenCounter,
    budget_tokens: int,
    finish_tool: str,
    task: Sequence[str] = (),
) -> PassInput:
    """Build the text for a companion from as many of the messages as fit a budget, the first in any case.

    Args:
        labels: of the blocks that companion and agent share.
        messages: in order, of all conversations that are read.
        zone: of the times in the text.
        task: what the companion is told to do in place of keeping the blocks; empty: it keeps them.
    """
    lines: list[str] = []
    several = len({message.conversation_seq for message in messages}) > 1
    last, is_full, used, number = None, False, 0, 0
    shown: list[Message] = []
    for message in messages:
        line = _message_line(message, zone, several=several)
        if line:
            number += 1
            line = f"{number}. {line}"
            tokens = counter.count(line)
            if lines and used + tokens > budget_tokens:
                is_full = True
                break
            used += tokens
            lines.append(line)
        last = message
        shown.append(message)
    keeping = [
        f"You are a sleeptime agent: you keep the memory of the agent {agent_name!r}, which is not waiting for you."
        " What was said and done in its conversations since your last pass follows as numbered lines.",
        f"The memory blocks that you share with it: {', '.join(labels) or 'none'}. Edit them where the lines say"
        f" something that lasts, then call {finish_tool} with your reason.",
    ]
    parts = [f"<{READING_TAG}>", *(task or keeping)]
    if (task or ERROR_PATTERNS in labels) and (failed := list(_failed_calls(shown))):
        keep = (
            f" Keep the block {ERROR_PATTERNS} from them: a line for each way in which they fail, with what helps; one"
            " line for calls that fail alike; without what is solved."
        )
        parts += [f"These calls of tools failed.{'' if task else keep}", *failed[-FAILED_MAX:]]
    parts += ["Messages:", *(lines or ["(none)"]), f"</{READING_TAG}>"]
    return PassInput("\n".join(parts), last, is_full)


def _message_line(message: Message, zone: tzinfo, *, several: bool) -> str:
    """A message as text, with the number of its conversation if there are several; empty: it has nothing to read."""
    speech = message.text.strip() if message.role in ("user", "assistant", "system") else ""
    calls = [f"[called {call.name} with {_cut(call.own_arguments)}]" for call in message.calls if not call.speech]
    results = [f"{result.name} returned: {_cut(result.text)}" for result in message.results]
    text = "\n".join(filter(None, (speech, *calls, *results)))
    if not text:
        return ""
    if len(text) > MESSAGE_CHARS:
        text = f"{text[:MESSAGE_CHARS]}… [cut: {len(text):,} characters]"
    time = message.occurred_at.astimezone(zone).strftime("%Y-%m-%d %H:%M")
    place = f", conversation {message.conversation_seq}" if several else ""
    name = f" {message.name}" if message.name and message.role == "user" else ""
    text = f"{message.role}{name} ({time}{place}): {escape_tags(text, (READING_TAG,))}"
    return f"\n{CONTINUATION}".join(text.splitlines())


def _failures(messages: Sequence[Message]) -> Iterator[ToolResult]:
    """The results of the calls that failed."""
    return (result for message in messages for result in message.results if result.status == "error")


def _failed_calls(messages: Sequence[Message]) -> Iterator[str]:
    """A line for each call that failed; for equal ones, one line with their number."""
    arguments: Mapping[str, str] = {call.call_id: call.own_arguments for message in messages for call in message.calls}
    counts = Counter(
        f"- {result.name} with {_cut(arguments.get(result.call_id, '?'))}: {_cut(result.text)}"
        for result in _failures(messages)
    )
    for text, count in counts.items():
        times = f" ({count} times)" if count > 1 else ""
        yield escape_tags(" ".join(f"{text}{times}".split()), (READING_TAG,))


def _cut(text: str) -> str:
    """The beginning of a text, in one line."""
    text = " ".join(text.split())
    return text if len(text) <= CALL_CHARS else f"{text[:CALL_CHARS]}…"
