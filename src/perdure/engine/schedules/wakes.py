"""What wakes an agent: the messages of a schedule that is due, or an event. The envelopes are the engine's own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.context.sections.envelopes import engine_tokens, envelope, input_tokens
from perdure.core.errors import InvalidInput, MessageTooLarge
from perdure.core.ids import AgentId, MessageId, RunId, id_in_run
from perdure.core.messages import ENGINE_SENDER, Draft, Text, images_of, text_of
from perdure.core.runs import RunOptions
from perdure.core.schedules import DuePlan, Schedule, ScheduledMessage
from perdure.core.text.json_strings import compact_json
from perdure.core.text.zones import zone
from perdure.engine.budget import check_key_size
from perdure.engine.ports import EngineSettings, Ports
from perdure.engine.run.accept import Request, check_input

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEvent:
    """Something that happened outside, such as a login.

    Args:
        kind: what: up to 64 letters, digits, and `_ . : / -`.
        data: more about it, as JSON has it.
        wake: whether the agent begins a run; else it reads of it with its next message.
    """

    kind: str
    data: Mapping[str, Any]
    wake: bool = True


def schedule_request(schedule: Schedule, plan: DuePlan, ports: Ports, *, max_steps: int) -> Request:
    """Return the request of a schedule's run."""
    run_id = RunId(ports.ids.new("run"))
    drafts: list[Draft] = []
    tokens: list[int] = []
    for place, message in enumerate(schedule.messages):
        message_id, text = MessageId(id_in_run(run_id, "input", place, ports.ids)), text_of(message.parts)
        if message.role == "system":
            wake = _schedule_envelope(schedule, plan, text)
            drafts.append(_engine_draft(message_id, wake, otid=message.otid))
            tokens.append(engine_tokens(wake, ports.counter))
            continue
        drafts.append(
            Draft(
                id=message_id,
                role=message.role,
                parts=message.parts,
                name=message.name,
                otid=message.otid,
                sender_id=message.sender_id,
            )
        )
        tokens.append(input_tokens(message.role, text, ports.counter, images=len(images_of(message.parts))))
    return Request(
        run_id=run_id,
        agent_id=schedule.agent_id,
        conversation_seq=schedule.conversation_seq,
        drafts=tuple(drafts),
        tokens=tuple(tokens),
        background=schedule.callback is not None,
        max_steps=max_steps if schedule.max_steps is None else schedule.max_steps,
        options=RunOptions(form=dict(schedule.form)),
        callback=schedule.callback,
        sent_chars=0,  # its messages were measured when it was made
    )


def event_request(
    agent_id: AgentId,
    event: UserEvent,
    ports: Ports,
    *,
    conversation_seq: int,
    timezone: str,
    max_steps: int,
    idempotency_key: str | None = None,
) -> Request:
    """Return the request of an event's run, which ends at once where the event wakes nobody.

    Raises: InvalidInput, MessageTooLarge.
    """
    data = _checked_data(event, ports.settings.message_limit_chars)
    time = _local(ports.clock.now(), timezone)
    text = envelope("event", event=event.kind, time=time, data=dict(event.data) or None)
    run_id = RunId(ports.ids.new("run"))
    return Request(
        run_id=run_id,
        agent_id=agent_id,
        conversation_seq=conversation_seq,
        drafts=(_engine_draft(MessageId(id_in_run(run_id, "input", 0, ports.ids)), text),),
        tokens=(engine_tokens(text, ports.counter),),
        idempotency_key=idempotency_key,
        identity=compact_json(["event", event.kind, data, event.wake]),
        max_steps=max_steps,
        options=RunOptions(note=not event.wake),
        sent_chars=len(data) if event.data else 0,
    )


def check_schedule(
    messages: Sequence[ScheduledMessage], max_steps: int | None, settings: EngineSettings, *, may_be_empty: bool
) -> int:
    """Check what a new schedule sends, and return its characters. Raises: EmptyMessage, TooMany, MessageTooLarge,
    InvalidInput."""
    drafts = [Draft(id=MessageId(""), role=message.role, parts=message.parts) for message in messages]
    check_input(drafts, settings, may_be_empty=may_be_empty, max_steps=max_steps)
    chars = sum(len(text_of(message.parts)) for message in messages)
    check_key_size(chars)
    return chars


def _checked_data(event: UserEvent, limit_chars: int) -> str:
    """The event's data as JSON. Raises: InvalidInput, MessageTooLarge."""
    if not isinstance(event.kind, str) or not _KIND.fullmatch(event.kind):
        raise InvalidInput(
            f"the kind of the event is {event.kind!r:.80}: give up to 64 letters, digits and _ . : / -, such as 'login'"
        )
    if not isinstance(event.data, Mapping):
        raise InvalidInput(f"the data of the event is {event.data!r:.80}: give an object of names and values")
    try:
        text = json.dumps(dict(event.data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the data of the event is not JSON: {error}") from error
    if len(text) > limit_chars:
        raise MessageTooLarge(size=len(text), limit=limit_chars)
    return text


def _schedule_envelope(schedule: Schedule, plan: DuePlan, text: str) -> str:
    return envelope(
        "schedule",
        id=schedule.id,
        name=schedule.name or None,
        due=_local(plan.due_at, schedule.timing.timezone),
        missed=plan.missed or None,
        message=text,
    )


def _engine_draft(message_id: MessageId, text: str, *, otid: str | None = None) -> Draft:
    """A system message of the engine: its sender is one that no caller may name."""
    return Draft(id=message_id, role="system", parts=(Text(text),), otid=otid, sender_id=ENGINE_SENDER)


def _local(moment: datetime, timezone: str) -> str:
    """The time in a zone, to the second."""
    return moment.astimezone(zone(timezone)).isoformat(timespec="seconds")
