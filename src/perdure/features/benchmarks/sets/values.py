"""What every benchmark is made of: histories, questions about them, and how a run is set up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

ABSTENTION = "abstention"
"""The kind of questions that the history does not answer, so that the right answer is to say so."""

Role = Literal["user", "assistant"]
Line = Literal["new", "fork"]
"""Where a question is asked: in a new conversation, or as the next message of the history."""

Progress = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and how much there is to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTurn:
    """One utterance in a history. `id`: unique in its case; `session`: the sitting that it belongs to."""

    id: str
    session: str
    role: Role
    speaker: str
    at: datetime
    text: str

    @property
    def line(self) -> str:
        """The utterance on one line, with its speaker and day."""
        return f"{self.speaker} ({self.at:%-d %B %Y}): {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseQuestion:
    """A question about a history.

    Args:
        id: unique in the benchmark.
        answer: the right answer; of an `abstention`, why there is none.
        evidence: the ids of the turns that answer it, and `sessions` theirs; empty: the data does not say.
        asked_on: the day on which it is asked, as the data writes it; empty: any.
        wrong: a wrong answer that the data names; empty: none.
        several: whether the answer is a list with commas, of which F1 looks for each part.
        prompt: the name of the prompt of a judge that is a model.
    """

    id: str
    kind: str
    text: str
    answer: str
    evidence: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    asked_on: str = ""
    wrong: str = ""
    several: bool = False
    prompt: str = "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A history and the questions about it.

    Args:
        asked_at: when it is asked about; None: after the newest turn of all histories.
        place: its column and row in the picture of a grid.
    """

    id: str
    turns: Sequence[CaseTurn]
    questions: Sequence[CaseQuestion]
    asked_at: datetime | None = None
    place: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """One benchmark.

    Args:
        title: how people call it.
        load: makes the cases of a seed from a `Setup`.
        line: where questions are asked.
        default_judge: the judge where none is named.
        about: what is measured, in a sentence.
        by_seed: whether each seed has cases of its own.
    """

    title: str
    load: Callable[[Setup, int], Sequence[Case]]
    line: Line
    default_judge: str
    about: str
    by_seed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a benchmark is run.

    Args:
        data: the file of the data, or `sample`; None: made by the benchmark itself, which only `niah` can.
        model: the handle of the model that answers; empty: only the search is measured, without a model.
        judge: `exact`, `f1`, or the handle of a model.
        systems: what is asked: `perdure`, and baselines.
        seeds: how often everything is asked, with the seeds 1, 2, ...
        out: the folder of the store, the rows and the results.
        kinds: only questions of these kinds; empty: of all.
        most: so many questions of a case at most; 0: all.
        settings: of the agent that answers.
        facts: whether facts are extracted from each history first, by the model that answers.
        at_once: how many histories are worked on at the same time.
        lengths, depths: the grid of `niah`, in tokens and in percent.
    """

    name: str
    data: Path | None
    model: str
    judge: str
    systems: Sequence[str]
    seeds: int
    out: Path
    kinds: Sequence[str] = ()
    most: int = 0
    line: Line = "new"
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: bool = False
    at_once: int = 1
    lengths: Sequence[int] = ()
    depths: Sequence[float] = ()
