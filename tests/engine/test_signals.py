"""What a process hears of others: who waits for it wakes, and nobody else."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.ids import AgentId
from perdure.core.runs import RunKey
from perdure.engine.process import LOOK_S, TopicSignals, run_of_topic
from perdure.storage.store import Hear
from perdure.testing import InlineStore


class ToldStore(InlineStore):
    """A store of a database with signals; `tell` is what others do."""

    def listen(self, hear: Hear) -> bool:
        self.tell = hear
        return True


def heard_of(topics: Sequence[str] | None) -> list[str]:
    signals, heard, store = TopicSignals(), list[str](), ToldStore()
    signals.on("run", lambda rest: heard.append(f"run {rest}"))
    signals.on("files", lambda rest: heard.append("files"))
    signals.hear(store)
    store.tell(topics)
    return heard


def test_a_topic_reaches_who_waits_for_its_kind() -> None:
    """With what it is about; unknown kinds of a newer process are passed over."""
    assert heard_of(["run agent-1 3", "novelties", "files"]) == ["run agent-1 3", "files"]


def test_what_may_have_been_missed_wakes_everybody() -> None:
    """After the connection was made anew."""
    assert heard_of(None) == ["run ", "files"]


def test_polling_is_rare_only_where_signals_come() -> None:
    """A file has none: it is looked at as often as ever."""
    deaf, hearing = TopicSignals(), TopicSignals()
    deaf.hear(InlineStore())
    hearing.hear(ToldStore())

    assert (deaf.look_s(0.1), hearing.look_s(0.1), hearing.look_s(60.0)) == (0.1, LOOK_S, 60.0)


def test_a_topic_names_its_run() -> None:
    """An empty one is about any."""
    assert run_of_topic("agent-1 3") == RunKey(AgentId("agent-1"), 3)
    assert run_of_topic("") is None
