"""Summaries of messages that were changed or removed: written again at once by code, and later by a model.

A node keeps its number and its place in the tree, so that handles stay valid. Requests that were sent have the old text
in their prefix; the next one begins with a new prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from perdure.context.window.atoms import atoms
from perdure.context.window.plan import LEAST_SUMMARY, SUMMARY_LIMITS, Evict, Merge
from perdure.context.window.summary import extract_summary
from perdure.core.conversations import CompactionSettings, ConversationKey, SummarySettings
from perdure.core.ids import AgentId
from perdure.core.messages import UNSEEN_KINDS, CompactionNote, Message
from perdure.core.nodes import SummaryNode
from perdure.engine.compaction.summarise import Summary, SummaryTask, load_prepared, summarise
from perdure.engine.ports import Ports, UnitInputs, with_next_model
from perdure.storage.tx import Tx

T = TypeVar("T")

ROWS_MAX = 4_000
"""The most messages that a summary is made of again: of more, as imports have, those at both ends."""

AT_ONCE_MAX = 16
"""The most summaries that a model writes after one run; the rest is written after the next."""


def revise_nodes(tx: Tx, messages: Iterable[Message], inputs: UnitInputs) -> Sequence[SummaryNode]:
    """Replace each summary of these messages, and each summary above it, by an extract of the texts that are left; also
    their copies in forks. The caller has locked the agent. Returns: the nodes before the change."""
    behind: dict[tuple[AgentId, int], set[int]] = {}
    for message in messages:
        if message.kind in UNSEEN_KINDS:
            continue
        behind.setdefault((message.agent_id, message.conversation_seq), set()).add(message.seq)
    return [
        node
        for conversation_key, seqs in behind.items()
        for node in _revise(tx, conversation_key, sorted(seqs), inputs)
    ]


def _revise(
    tx: Tx, conversation_key: ConversationKey, seqs: Sequence[int], inputs: UnitInputs
) -> Iterator[SummaryNode]:
    """Rewrite the nodes for these messages, those above them, and copies in forks; yield each as it was before."""
    agent_id, first = conversation_key
    lines: dict[int, set[int]] = {first: set()}  # conversation -> its nodes that have a new text
    while lines:
        conversation_seq = min(lines)  # a fork is younger than what it was made from
        changed = lines.pop(conversation_seq)
        for node in tx.nodes.list_behind(agent_id, conversation_seq, seqs):
            if conversation_seq != first and not changed & set(node.children):
                continue  # in a fork, numbers of messages say nothing
            text = _extract_again(tx, node, inputs)
            revised = replace(
                node,
                text=text,
                tokens=inputs.counter.count(text),
                made_by="extract",
                method="fallback",
                rejected=None,
                revised_at=inputs.now,
            )
            tx.nodes.put(revised)
            changed.add(node.seq)
            yield node
            for copy in tx.nodes.list_copies(node):
                tx.nodes.put(replace(revised, conversation_seq=copy.conversation_seq, seq=copy.seq))
                lines.setdefault(copy.conversation_seq, set()).add(copy.seq)
                yield copy


def find_note(tx: Tx, node: SummaryNode, *, reset: bool) -> tuple[Message, CompactionNote] | None:
    """Return the message which tells that the summary replaced others, and what it tells. A model may have written the
    summary anew since: then it is the first that tells of as many messages. `reset`: also one out of view."""
    rows = tx.messages.list(
        node.agent_id,
        conversation_seq=node.conversation_seq,
        after_seq=node.upto_message_seq,
        kinds=("compaction",),
        reset=reset,
    )
    notes = [(row, part) for row in rows for part in row.parts if isinstance(part, CompactionNote)]
    same = [one for one in notes if node.text in one[1].text]
    return next(iter(same or (one for one in notes if one[1].hidden_messages == node.message_count)), None)


def _extract_again(tx: Tx, node: SummaryNode, inputs: UnitInputs) -> str:
    """Return an extract of what is left behind a node, no longer than the node's text was."""
    limit = max(node.tokens, LEAST_SUMMARY)
    if node.children:
        children = tx.nodes.list_by_seqs(node.agent_id, node.conversation_seq, node.children)
        return extract_summary(Merge(tuple(children), limit), inputs.counter)
    rows = _rows_behind(tx, node)
    return extract_summary(Evict(tuple(atoms(rows)), 0, (), limit), inputs.counter)


def _rows_behind(tx: Tx, node: SummaryNode) -> Sequence[Message]:
    """Load the messages that a node stands for; of more than `ROWS_MAX` those at both ends."""
    agent_id, conversation_seq = node.agent_id, node.conversation_seq
    first, last = node.from_message_seq, node.upto_message_seq
    if last - first < ROWS_MAX:
        return tx.messages.view(agent_id, conversation_seq, from_seq=first, upto_seq=last)
    half = ROWS_MAX // 2
    head = tx.messages.view(agent_id, conversation_seq, from_seq=first, upto_seq=first + half)
    return [*head, *tx.messages.view(agent_id, conversation_seq, from_seq=last - half, upto_seq=last)]


@dataclass(frozen=True, slots=True)
class DueSummary(Generic[T]):
    """A summary that a model has to write: its place, its messages, and its writer."""

    place: T
    removal: Evict | Merge
    task: SummaryTask


LoadDue = Callable[[Tx, ConversationKey, UnitInputs], DueSummary[T] | None]
"""The next summary that is due in a conversation; None: there is none. Raises: NotFound."""
StoreDue = Callable[[Tx, DueSummary[T], Summary, UnitInputs], bool]
"""Stores what was written, if what it stands for is as it was; returns whether that was done."""


async def write_due(conversation_key: ConversationKey, ports: Ports, load: LoadDue[T], store: StoreDue[T]) -> bool:
    """Have up to `AT_ONCE_MAX` due summaries of a conversation written; return whether all that were due are. Raises:
    NotFound, StoreError; CallPostponed, with what was written before it stored."""
    for _ in range(AT_ONCE_MAX):
        due = await ports.store.read(load, conversation_key, ports.inputs())
        if due is None:
            return True
        async with ports.slot(due.task.model(ports.models)):
            due = await ports.store.read(load, conversation_key, ports.inputs())  # the wait may have been long
            if due is None:
                return True
            summary = await summarise(due.task, due.removal, ports)
        # Its model may answer later; a full window takes the extract.
        if summary.failed or not await ports.store.write(store, due, summary, ports.inputs()):
            return False
    return False


async def rewrite_revised(conversation_key: ConversationKey, ports: Ports) -> None:
    """Have a model write the revised summaries in view again. Raises: as `write_due`.

    Also those that code wrote because a person waited. The view takes them with its next prefix. An answer that is no
    good leaves the extract, which is not tried again.
    """
    await write_due(conversation_key, ports, _load_due, _store)


def _load_due(tx: Tx, conversation_key: ConversationKey, inputs: UnitInputs) -> DueSummary[SummaryNode] | None:
    """Return the next summary to write again: a node in view or prepared whose messages were revised, or that code
    wrote because a person waited, and that no model has tried since. None: there is none. Raises: NotFound."""
    agent_id, conversation_seq = conversation_key
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    agent = with_next_model(tx.conversations.get_agent(agent_id, conversation_seq), inputs.models)
    if conversation.prefix_seq is None or not SummarySettings.of(agent).background:
        return None
    prefix = tx.prefixes.get(agent_id, conversation.prefix_seq)
    shown = tx.nodes.list_by_seqs(agent_id, conversation_seq, prefix.nodes)
    for place, node in enumerate((*shown, *load_prepared(tx, prefix))):
        is_late = node.revised_at is not None or node.model is not None
        if not is_late or node.made_by == "model" or node.rejected is not None:
            continue
        removal = _removal_of(tx, node)
        if removal is None:
            continue
        window, reserve = inputs.window(agent)
        task = SummaryTask(
            agent=agent, settings=CompactionSettings.of(agent), nodes=shown[:place], budget_tokens=window - reserve
        )
        return DueSummary(node, removal, task)
    return None


def _removal_of(tx: Tx, node: SummaryNode) -> Evict | Merge | None:
    """Return the plan whose summary a node is, to write it again; None: it has unknown children or too many rows."""
    limit = max(node.tokens, SUMMARY_LIMITS[0])
    if node.children:
        children = tx.nodes.list_by_seqs(node.agent_id, node.conversation_seq, node.children)
        return Merge(tuple(children), limit) if children else None
    if node.upto_message_seq - node.from_message_seq >= ROWS_MAX or not (rows := _rows_behind(tx, node)):
        return None
    return Evict(tuple(atoms(rows)), 0, (), limit)


def _store(tx: Tx, due: DueSummary[SummaryNode], summary: Summary, inputs: UnitInputs) -> bool:
    """Store the summary, unless the node or a text behind it has changed since; return whether it was stored."""
    node = due.place
    if not due.task.reading(node.conversation_seq, due.removal).holds(tx):
        return False
    now = tx.nodes.list_by_seqs(node.agent_id, node.conversation_seq, [node.seq])
    if list(now) != [node] or _removal_of(tx, node) != due.removal:
        return False
    tx.nodes.put(
        replace(
            node,
            text=summary.text,
            tokens=inputs.counter.count(summary.text),
            made_by=summary.made_by,
            method=summary.method,
            model=summary.model,
            # An extract stays one, and says that a model has tried.
            rejected=summary.rejected,
            usage=node.usage + summary.usage,
        )
    )
    return True
