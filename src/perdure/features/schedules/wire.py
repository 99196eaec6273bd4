"""Schedules on the wire, as Letta's API has them, with more fields of our own; and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, Discriminator, Field, Tag
from typing_extensions import TypedDict

from perdure.core.errors import ScheduleInvalid
from perdure.core.messages import Text
from perdure.core.runs import Callback
from perdure.core.secrets import hide_secret
from perdure.engine.records.run_request import MAX_STEPS, NewMessage
from perdure.features.schedules.units import NewSchedule
from perdure.features.schedules.values import Firing, Schedule, ScheduledMessage, is_day
from perdure.server.wire.base import WireRequest, parse_parts, stamp
from perdure.server.wire.fields import ConversationOrDefault, Items, JsonObject, MaxItems, keywords
from perdure.server.wire.input import MessageIn
from perdure.server.wire.messages import MessageType
from perdure.server.wire.shapes import WireShape

SECONDS_BELOW = 100_000_000_000
"""A smaller `scheduled_at` is in seconds, a larger one in milliseconds, as Letta has it: in these it would be 1973."""


class OneTimeIn(WireRequest):
    """A time, once: milliseconds since 1970, or seconds."""

    type: Literal["one-time"] = "one-time"
    scheduled_at: Annotated[float, Field(ge=0, le=1e15)]


class RecurringIn(WireRequest):
    """A cron expression of five fields, or a name such as @daily, in `timezone`."""

    type: Literal["recurring"]
    cron_expression: str


class IntervalIn(WireRequest):
    """An interval. It is not part of Letta's API."""

    type: Literal["interval"]
    every_s: int


def _when_tag(when: Any) -> str | None:
    """Return the tag in `_KINDS` for the field `schedule` of a request; None: its type is unknown. Without a type its
    fields decide, since the client leaves the type of a one-time schedule out."""
    if not isinstance(when, dict):
        return next((tag for tag, kind in _KINDS.items() if isinstance(when, kind)), "one-time()")
    kind = when.get("type")
    if kind is None:
        kind = "recurring" if "cron_expression" in when else "interval" if "every_s" in when else "one-time"
    tag = f"{kind}()"
    return tag if tag in _KINDS else None


# The tags look like steps of the validator, so that error texts leave them out.
_KINDS: Mapping[str, type] = {"one-time()": OneTimeIn, "recurring()": RecurringIn, "interval()": IntervalIn}
_When = Annotated[
    Annotated[OneTimeIn, Tag("one-time()")]
    | Annotated[RecurringIn, Tag("recurring()")]
    | Annotated[IntervalIn, Tag("interval()")],
    Discriminator(
        _when_tag,
        custom_error_type="schedule_type",
        custom_error_message="type should be 'one-time', 'recurring' or 'interval'",
    ),
]


def _last_moment(value: Any) -> Any:
    """Return the last moment of the day for a date alone, such as `2026-11-24`; other values unchanged."""
    return f"{value}T23:59:59.999999" if isinstance(value, str) and is_day(value) else value


class ScheduleIn(WireRequest):
    """A schedule to create. The first five fields are Letta's; `quiet_hours` is a text such as `22:00-07:00`."""

    messages: Annotated[list[MessageIn], MaxItems("messages_per_request"), keywords(minItems=1)]
    schedule: _When
    callback_url: str | None = None
    include_return_message_types: Items[MessageType] | None = None
    max_steps: Annotated[int, keywords(minimum=1, maximum=MAX_STEPS)] | None = None
    name: Annotated[str, Field(max_length=200)] = ""
    timezone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: Annotated[datetime, BeforeValidator(_last_moment)] | None = None
    max_firings: Annotated[int, keywords(minimum=1)] | None = None
    missed: Literal["skip", "once", "all"] = "once"
    missed_limit: Annotated[int, keywords(minimum=1, maximum=100)] = 10
    quiet_hours: str | None = None
    in_quiet_hours: Literal["move", "skip"] = "move"
    conversation_id: ConversationOrDefault | None = None

    def new_messages(self) -> Sequence[NewMessage]:
        """The messages to send. Raises: InvalidInput, NotSupported."""
        return [
            item.new(parse_parts(item.content, f"messages.{index}.content")) for index, item in enumerate(self.messages)
        ]

    def new_schedule(self, *, callback: Callback | None, conversation_seq: int) -> NewSchedule:
        """The schedule as `AsyncSchedules.add` takes it, without messages. Raises: ScheduleInvalid."""
        when = self.schedule
        types = self.include_return_message_types
        form = {} if types is None else {"include_return_message_types": list(types)}
        same = ("name", "timezone", "starts_at", "ends_at", "max_firings", "missed", "missed_limit", "in_quiet_hours")
        values: dict[str, Any] = {name: getattr(self, name) for name in (*same, "max_steps")}
        return NewSchedule(
            messages=(),
            at=_moment(when.scheduled_at) if isinstance(when, OneTimeIn) else None,
            every_s=when.every_s if isinstance(when, IntervalIn) else None,
            cron=when.cron_expression if isinstance(when, RecurringIn) else None,
            quiet=self.quiet_hours,
            conversation_seq=conversation_seq,
            callback=callback,
            form=form,
            **values,
        )


class EventIn(WireRequest):
    """An event that an agent is told of. With `wake` off it begins no run, but reads of it with its next message."""

    kind: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")]
    data: JsonObject = Field(default_factory=dict)
    wake: bool = True
    conversation_id: ConversationOrDefault | None = None
    max_steps: Annotated[int, keywords(minimum=1, maximum=MAX_STEPS)] | None = None


class CreatedSchedule(WireShape, of=Schedule, fields="id", next_scheduled_at="next_at"):
    """A schedule that was created."""


class ScheduleDeleted(TypedDict):
    """A schedule was removed."""

    success: Literal[True]


class SentShape(TypedDict):
    """What a schedule sends."""

    messages: list[dict[str, Any]]
    callback_url: NotRequired[str]
    include_return_message_types: NotRequired[list[str]]
    max_steps: NotRequired[int]


class ScheduleShape(
    WireShape,
    of=Schedule,
    fields="id agent_id name status made_by timing.timezone timing.starts_at timing.ends_at timing.max_firings"
    " timing.missed timing.missed_limit firings created_at",
    next_scheduled_time="next_at",
    in_quiet_hours="timing.quiet.then",
    optional="next_times",
):
    """A schedule."""

    message: SentShape
    schedule: dict[str, Any]
    quiet_hours: str | None
    next_times: list[str]


class ScheduleList(TypedDict):
    """A page of schedules."""

    has_next_page: bool
    scheduled_messages: list[ScheduleShape]


class FiringShape(WireShape, of=Firing, fields="seq due_at fired_at outcome run_id missed reason"):
    """What was done at a due time of a schedule, such as the run that it began, or why nothing was."""


def schedule_shape(schedule: Schedule, next_times: Sequence[datetime] | None = None) -> ScheduleShape:
    """A schedule as an answer has it, with its next due times if they are given."""
    quiet = schedule.timing.quiet
    sent: dict[str, Any] = {"messages": [_message_shape(message) for message in schedule.messages]}
    if schedule.callback is not None:
        sent["callback_url"] = hide_secret(schedule.callback.url)[0]
    if schedule.max_steps is not None:
        sent["max_steps"] = schedule.max_steps
    return ScheduleShape.make(
        schedule,
        message=sent | dict(schedule.form),
        schedule=_when_shape(schedule),
        quiet_hours=None if quiet is None else f"{quiet.start:%H:%M}-{quiet.end:%H:%M}",
        next_times=None if next_times is None else [stamp(moment) for moment in next_times],
    )


def _when_shape(schedule: Schedule) -> dict[str, Any]:
    """The field `schedule` of an answer: when it is due, as Letta's API has it."""
    timing = schedule.timing
    if timing.at is not None:
        return {"type": "one-time", "scheduled_at": round(timing.at.timestamp() * 1_000)}
    if timing.every_s is not None:
        return {"type": "interval", "every_s": timing.every_s}
    return {"type": "recurring", "cron_expression": timing.cron}


def _message_shape(message: ScheduledMessage) -> dict[str, Any]:
    """A message of a schedule in an answer; a single text is the content itself, as Letta has it."""
    content: str | list[Mapping[str, Any]] = [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
        for part in message.parts
    ]
    if len(message.parts) == 1 and isinstance(message.parts[0], Text):
        content = message.parts[0].text
    more = {name: value for name in ("name", "otid", "sender_id") if (value := getattr(message, name)) is not None}
    return {"type": "message", "role": message.role, "content": content, **more}


def _moment(number: float) -> datetime:
    """Return the time of a number of seconds since 1970, or of milliseconds if it is large. Raises: ScheduleInvalid."""
    try:
        return datetime.fromtimestamp(number if number < SECONDS_BELOW else number / 1_000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ScheduleInvalid(
            f"scheduled_at is {number:g}: give the milliseconds from 1970 to a time of this century"
        ) from error
