"""What a bot still has to say, kept in a file so that a restart loses and repeats nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.scratch import replace_file


@dataclass(slots=True)
class Delivery:
    """An answer on its way to a chat.

    Args:
        run_id: of the answer; empty: a call is decided first, and the run that goes on has it.
        call_id, approve: the decision.
        sent: how many messages of the answer the chat has.
    """

    chat: int
    conversation: str
    run_id: str = ""
    call_id: str = ""
    approve: bool = False
    sent: int = 0


@dataclass(slots=True)
class DeliveryLog:
    """The state of a bot: chat -> its conversation, and update -> its delivery.

    Args:
        newest: the update up to which Telegram knows that all were taken.
        taken: the later ones that were taken, which Telegram sends again after a restart.
        questions: button -> the conversation whose call it decides.
    """

    path: Path
    chats: dict[str, str] = field(default_factory=dict)
    open: dict[int, Delivery] = field(default_factory=dict)
    newest: int = 0
    taken: set[int] = field(default_factory=set)
    questions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> DeliveryLog:
        """Read the log; a missing file is an empty log. Raises: InvalidInput: it can't be read."""
        try:
            found = json.loads(path.read_text("utf-8"))
            deliveries = {int(update): Delivery(**fields) for update, fields in found.pop("open").items()}
            return cls(path, **{**found, "open": deliveries, "taken": set(found["taken"])})
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInput(
                f"{path} can't be read ({error}): repair it, or move it away; chats then begin new conversations"
            ) from error

    def save(self) -> None:
        """Write the log, whole or not at all."""
        state = {name: value for name, value in asdict(self).items() if name != "path"}
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self.path, json.dumps(state, default=sorted).encode())  # of the set
