"""What the tail of a request says about the agent's own work: its notes, its newest steps, and notices.

All of it is computed from the store, so a process that takes a run over says the same; the recipe keeps the tail, so a
past request is built again with what it said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from perdure.context.sections.assemble import TailNotes
from perdure.context.sections.expand import Budget
from perdure.core.agents import Agent, GuardSettings
from perdure.core.blocks import WORKING_CHECKPOINT
from perdure.core.messages import Message
from perdure.core.nodes import message_handle
from perdure.core.runs import NO_OPTIONS, Prefix, Run, Step
from perdure.core.tools.engine_specs import CHECKPOINT_TOOL, tools_with
from perdure.engine.log.next_action import count_stalled, step_line, tool_steps
from perdure.engine.log.orders import order_to_ask
from perdure.engine.ports import UnitInputs
from perdure.storage.tx import Tx

_SAVING_TOOLS = sorted(tools_with("saves"), key=lambda name: name != CHECKPOINT_TOOL)
"""The tools by which an agent keeps what will leave its view, that of its notes first."""
TURN_ROWS = 300
"""How many rows before a run that goes on with answers are searched for steps of its turn."""
ROWS_PER_STEP = 4
"""How many rows of earlier runs are read for each step that is listed."""
WARNED_PAGES, PAGE = 10, 10
"""How many pages of steps are searched for an earlier notice."""
PRESSURE = "memory pressure: "
CHECKPOINT_SHARE = 0.1
"""The most of the room that working notes take; longer ones are cut."""


def build_notes(
    tx: Tx,
    agent: Agent,
    prefix: Prefix,
    run: Run | None,
    messages: Sequence[Message],
    inputs: UnitInputs,
    *,
    has_notes: bool,
) -> TailNotes:
    """Return what the tail of the next request says, without how full the window is.

    Args:
        prefix: of the request.
        run: None: no run goes on.
        messages: of the run, in order.
        has_notes: whether a block of the agent holds working notes.
    """
    options = NO_OPTIONS if run is None else run.options
    guards, seq = GuardSettings.from_settings(agent.settings, options), prefix.conversation_seq
    tools = {tool["name"] for tool in prefix.tools}
    turn = messages
    if run is not None and run.turn_from is not None and run.begins_at is not None:  # since the user spoke
        first_seq = max(run.turn_from, run.begins_at - TURN_ROWS)
        turn = (*tx.messages.view(agent.id, seq, from_seq=first_seq, upto_seq=run.begins_at - 1), *messages)
    return TailNotes(
        checkpoint=_checkpoint(tx, agent, seq, inputs) if has_notes and CHECKPOINT_TOOL in tools else "",
        recent_steps=_recent_steps(tx, agent, seq, turn, guards.recent_steps) if guards.recent_steps else (),
        notices=_progress_notices(guards, turn, tools) if tools and len(turn) > 1 else (),  # one row holds no step
    )


def add_pressure(tx: Tx, agent: Agent, prefix: Prefix, notes: TailNotes, *, filled: float) -> TailNotes:
    """Return the notes with a notice that messages will leave. `filled`: the share of the window that is in use."""
    saving = [name for name in _SAVING_TOOLS if any(tool["name"] == name for tool in prefix.tools)]
    if not saving:
        return notes
    oldest = message_handle(prefix.from_message_seq)
    if _has_read_notice(tx, agent, prefix, oldest):
        return notes
    notice = (
        f"{PRESSURE}{filled:.0%} of the context window is used. Soon the oldest messages, from {oldest} on,"
        f" leave it behind a summary. Save now what you must remember word for word ({', '.join(saving[:3])})."
    )
    return replace(notes, notices=(notice, *notes.notices))


def _has_read_notice(tx: Tx, agent: Agent, prefix: Prefix, oldest: str) -> bool:
    """Return whether a model has read the notice since messages last left the view. `oldest`: handle of the oldest."""
    sign = f"from {oldest} on"
    begins = {prefix.seq: prefix.from_message_seq}
    gaps = tx.gaps.list(agent.id, prefix.conversation_seq)  # what was told behind a restored state is not in view
    last: Step | None = None
    for _ in range(WARNED_PAGES):
        steps = tx.steps.list(agent.id, conversation_seq=prefix.conversation_seq, limit=PAGE, before=last)
        for last in steps:
            if any(first <= last.recipe.upto_message_seq <= end for first, end, *_ in gaps):
                continue
            seq = last.recipe.prefix_seq
            if seq not in begins:
                begins[seq] = tx.prefixes.get(agent.id, seq).from_message_seq
            if begins[seq] != prefix.from_message_seq:
                return False
            if last.status == "success" and PRESSURE in last.recipe.tail and sign in last.recipe.tail:
                return True
        if len(steps) < PAGE:
            break
    return False


def _checkpoint(tx: Tx, agent: Agent, conversation_seq: int, inputs: UnitInputs) -> str:
    """Return the working notes of a conversation, cut to their share of the window; empty: there are none."""
    blocks = tx.blocks.list_by_agent(agent.id, conversation_seq)
    notes = next((block.value.strip() for block in blocks if block.label == WORKING_CHECKPOINT), "")
    window, reserve = inputs.window(agent)
    budget = Budget(inputs.counter, int((window - reserve) * CHECKPOINT_SHARE))
    return notes if budget.fits(notes) else f"{budget.cut(notes)}…"


def _recent_steps(tx: Tx, agent: Agent, conversation_seq: int, turn: Sequence[Message], limit: int) -> tuple[str, ...]:
    """Return a line for each of the newest steps, oldest first.

    Args:
        turn: the messages since the user spoke; where they hold too few steps, earlier ones are read.
        limit: how many steps at most.
    """
    steps = tool_steps(turn)
    if len(steps) < limit:
        before = turn[0].seq if turn else None
        missing = limit - len(steps)
        rows = tx.messages.list(
            agent.id,
            conversation_seq=conversation_seq,
            before_seq=before,
            limit=ROWS_PER_STEP * missing,
            newest_first=True,
        )
        steps = [*tool_steps(reversed(rows)), *steps]
    return tuple(map(step_line, steps[-limit:]))


def _progress_notices(guards: GuardSettings, turn: Sequence[Message], tools: Collection[str]) -> tuple[str, ...]:
    """Return what the agent is told about steps that get nowhere.

    Args:
        turn: the messages since the user spoke.
        tools: the names of its tools.
    """
    steps = tool_steps(turn)
    if not steps:
        return ()
    stalled = count_stalled(steps)
    if guards.ask_steps and stalled >= guards.ask_steps:
        return (order_to_ask(f"{stalled} steps in a row brought nothing new", tools),)
    if guards.turn_steps and len(steps) >= guards.turn_steps:
        return (order_to_ask(f"{len(steps)} steps since the user spoke", tools),)
    if not guards.stalled_steps:
        return ()
    if stalled >= guards.stalled_steps:
        return (
            f"no progress: the last {stalled} steps failed, or repeated calls with the results that you know. Take"
            " another way, or say what is missing.",
        )
    return ()
