"""What a group says to a message, told by the events of its turn."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core.events import RunEnded, StoredEvent
from perdure.core.runs import Failure, Usage
from perdure.core.text.reprs import short_repr
from perdure.features.groups.values import (
    GroupEvent,
    GroupMessage,
    GroupStopReason,
    GroupTurn,
    GroupTurnEnded,
    Speaker,
    SpeakerEvent,
    SpeakerFailed,
    SpeakerStarted,
)
from perdure.library.messages.reply import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerReply:
    """What an agent of a group said in a run. `failure`: the entry that says why not; `reply`: None without a run."""

    __repr__ = short_repr("speaker", "reply", "problem")

    speaker: Speaker
    reply: Reply | None = None
    failure: GroupMessage | None = None

    @property
    def problem(self) -> str | None:
        """Why it could not speak, or not to the end."""
        return None if self.failure is None else self.failure.text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReply:
    """One turn of a group: what each of its agents says to a message, in order, a manager's choices included."""

    __repr__ = short_repr("text", "stop_reason", "failure")

    turn: GroupTurn
    replies: tuple[SpeakerReply, ...]

    @property
    def text(self) -> str:
        """All speeches, each after its speaker's name: `Anna: ...`."""
        return "\n\n".join(f"{speech.speaker.name}: {speech.reply.text}" for speech in self._speeches if speech.reply)

    @property
    def answer(self) -> str:
        """The last speech: a supervisor's answer, or what ended the talk."""
        return next((speech.reply.text for speech in reversed(self._speeches) if speech.reply), "")

    @property
    def stop_reason(self) -> GroupStopReason:
        """Why the turn ended."""
        return self.turn.stop_reason or "error"

    @property
    def failure(self) -> Failure | None:
        """Why it failed, if it did."""
        return self.turn.failure

    @property
    def usage(self) -> Usage:
        """The tokens of all its runs."""
        return self.turn.usage

    @property
    def _speeches(self) -> list[SpeakerReply]:
        """The replies with a text, without the choices of a manager."""
        return [reply for reply in self.replies if reply.speaker.task != "choose" and reply.reply and reply.reply.text]

    @classmethod
    def of(cls, events: list[GroupEvent]) -> GroupReply:
        """Build the reply from the events of a whole turn, of which the last is its end."""
        end = events[-1]
        assert isinstance(end, GroupTurnEnded)
        stored: dict[int, list[StoredEvent]] = {}
        failures: dict[int, GroupMessage] = {}
        speakers: dict[int, Speaker] = {}
        for event in events:
            match event:
                case SpeakerStarted(speaker=speaker) | SpeakerEvent(speaker=speaker) | SpeakerFailed(speaker=speaker):
                    speakers[speaker.place] = speaker
                case GroupTurnEnded():
                    continue
            if isinstance(event, SpeakerEvent) and isinstance(event.event, StoredEvent):
                stored.setdefault(speaker.place, []).append(event.event)
            elif isinstance(event, SpeakerFailed):
                failures[speaker.place] = event.entry
        replies = {
            place: Reply.of(found) for place, found in stored.items() if isinstance(found[-1].event, RunEnded)
        }  # an agent that was deleted while it spoke has no end
        return cls(
            turn=end.turn,
            replies=tuple(
                SpeakerReply(speaker=speaker, reply=replies.get(place), failure=failures.get(place))
                for place, speaker in sorted(speakers.items())
            ),
        )
