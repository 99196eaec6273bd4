"""What is with_date: an agent of Perdure that remembers, and baselines that are given a part of the history, or none.

All of them are agents, so that the store keeps each of their requests.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import count
from typing import Protocol

from perdure.core.text.tables import read_table
from perdure.core.text.words import STOP_WORDS
from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.benchmarks.sets.values import Case, CaseQuestion, CaseTurn, Setup
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

EXCERPTS = 20
"""So many turns the baseline `bm25` is given."""
SPARE_TOKENS = 2_000
"""What of a window the whole history leaves for prompt and question, beside a sixteenth for the answer."""
PAGE = 10_000


@cache
def texts() -> Mapping[str, Mapping[str, str]]:
    """Return the prompts of the systems, and their descriptions."""
    return read_table(__file__, "texts.toml")


class System(Protocol):
    """One way of answering questions about a case. `tools`: the only tools that it may call; None: all that it has."""

    tools: Sequence[str] | None

    async def prepare(self, case: Case) -> AsyncAgent:
        """Return the agent that answers the questions of a case; an earlier preparation is used again."""

    def text(self, case: Case, question: CaseQuestion) -> str:
        """Return the message with a question."""


class AgentSystem:
    """An agent with the history of a case imported, as anybody imports one."""

    tools: Sequence[str] | None = None

    def __init__(self, perdure: AsyncPerdure, setup: Setup) -> None:
        self._perdure, self._setup = perdure, setup
        self._ready: dict[str, AsyncAgent] = {}

    async def prepare(self, case: Case) -> AsyncAgent:
        """Return the agent of a case, with all turns imported and found by words and, with an embedder, by vectors."""
        if case.id in self._ready:
            return self._ready[case.id]
        agent = await self._perdure.get_or_create_agent(
            case.id,
            model=self._setup.model or "perdure/extractive",
            persona=texts()["prompts"]["answer"],
            tools=["conversation_search"],
            archival=False,
            settings=self._setup.settings,
        )
        if await agent.message_count() < len(case.turns):
            await agent.import_messages(map(to_imported_message, case.turns, count(1)))
        if self._perdure.app.embedder is not None:
            await self._perdure.upkeep.reindex([agent.id], again=False, progress=lambda step, done, total: None)
        self._ready[case.id] = agent
        return agent

    def text(self, case: Case, question: CaseQuestion) -> str:
        """Return the question."""
        return with_date(question)

    async def turns_of(self, agent: AsyncAgent, case: Case) -> Mapping[int, CaseTurn]:
        """Number of a message -> its turn."""
        first = (await agent.conversations(limit=1))[0].id
        found: dict[int, CaseTurn] = {}
        while page := await agent.messages(conversation=first, limit=PAGE, after_seq=max(found, default=None)):
            found.update(zip([one.seq for one in page], case.turns[len(found) :], strict=False))
        return found


class PlainSystem:
    """An agent without memory or tools: what it knows stands in the message."""

    tools: Sequence[str] | None = ()

    def __init__(self, perdure: AsyncPerdure, setup: Setup, name: str) -> None:
        self._perdure, self._setup, self._name = perdure, setup, name

    async def prepare(self, case: Case) -> AsyncAgent:
        """Return the one agent of all cases."""
        return await plain_agent(self._perdure, f"baseline-{self._name}", self._setup.model, "answer")

    def text(self, case: Case, question: CaseQuestion) -> str:
        """Return the question preceded by the part of the history that the baseline gets."""
        if self._name == "none":
            return with_date(question)
        turns = self._newest(case) if self._name == "full" else WordIndex(case.turns).search(question.text)[:EXCERPTS]
        form = texts()["prompts"]["history" if self._name == "full" else "excerpts"]
        chosen = {turn.id for turn in turns}
        history = "\n".join(turn.line for turn in case.turns if turn.id in chosen)
        return form.format(history=history, question=with_date(question))

    def _newest(self, case: Case) -> Sequence[CaseTurn]:
        """Return as many of the newest turns as fit the window of the model."""
        app = self._perdure.app
        window = app.models.window_tokens(self._setup.model) or app.ports.settings.context_window_tokens
        left = window - window // 16 - SPARE_TOKENS
        for at in range(len(case.turns) - 1, -1, -1):
            left -= app.ports.counter.count(case.turns[at].line) + 1
            if left < 0:
                return case.turns[at + 1 :]
        return case.turns


class GrepSystem:
    """An agent with the history as a file, which it may open and search with grep."""

    tools: Sequence[str] | None = ("grep_files", "open_files")

    def __init__(self, perdure: AsyncPerdure, setup: Setup) -> None:
        self._perdure, self._setup = perdure, setup

    async def prepare(self, case: Case) -> AsyncAgent:
        """Return the agent of a case, with its file."""
        name = f"files-{case.id}"
        agent = await plain_agent(self._perdure, name, self._setup.model, "answer")
        if await agent.files.folders():
            return agent
        folders = {folder.name: folder for folder in await self._perdure.folders.list(limit=PAGE)}
        folder = folders.get(name) or await self._perdure.folders.create(name)
        text = "\n".join(turn.line for turn in case.turns)
        await folder.upload(text.encode("utf-8", "replace"), name="history.txt")
        await folder.wait()
        await agent.files.attach(folder.id, open_files=False)
        return agent

    def text(self, case: Case, question: CaseQuestion) -> str:
        """Return the question, and where to look."""
        return texts()["prompts"]["files"].format(question=with_date(question))


class WordIndex:
    """Turns in SQLite's own full-text index, ranked by its BM25."""

    def __init__(self, turns: Sequence[CaseTurn]) -> None:
        self._turns = turns

    def search(self, query: str) -> Sequence[CaseTurn]:
        """Return the turns with a word of the query, best first; words that say little do not count."""
        every = "".join(char if char.isalnum() else " " for char in query).split()
        words = [word for word in every if word.lower() not in STOP_WORDS] or every
        with closing(sqlite3.connect(":memory:")) as db:
            db.execute("CREATE VIRTUAL TABLE turns USING fts5(text, tokenize = 'porter unicode61')")
            db.executemany("INSERT INTO turns (rowid, text) VALUES (?, ?)", enumerate(one.line for one in self._turns))
            sql = "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY bm25(turns), rowid"
            rows = db.execute(sql, (" OR ".join(f'"{word}"' for word in words),)).fetchall() if words else []
        return [self._turns[row[0]] for row in rows]


def system_of(name: str, perdure: AsyncPerdure, setup: Setup) -> System:
    """Return the system of a name among `texts()["systems"]`."""
    if name == "perdure":
        return AgentSystem(perdure, setup)
    return GrepSystem(perdure, setup) if name == "files" else PlainSystem(perdure, setup, name)


def search_by(perdure: AsyncPerdure) -> str:
    """Return what the search goes by."""
    embedder = perdure.app.embedder
    return "words alone" if embedder is None else f"words and vectors of {embedder.handle}"


async def plain_agent(perdure: AsyncPerdure, name: str, model: str, prompt: str) -> AsyncAgent:
    """Return the agent of this name, which has a prompt of `texts()` and nothing else."""
    return await perdure.get_or_create_agent(
        name,
        model=model,
        system=texts()["prompts"][prompt],
        tools=[],
        archival=False,
        settings={"auto_recall": False, "facts": False},
    )


def with_date(question: CaseQuestion) -> str:
    """Return the question with its date, if the data has one."""
    form = texts()["prompts"]["asked_on"] if question.asked_on else "{question}"
    return form.format(date=question.asked_on, question=question.text)


def to_imported_message(turn: CaseTurn, place: int) -> ImportedMessage:
    """A turn as a message to import. Its id is its index, since of two turns with one id one would be left out."""
    return ImportedMessage(role=turn.role, name=turn.speaker, text=turn.text, occurred_at=turn.at, id=str(place))
