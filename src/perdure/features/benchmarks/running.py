"""A run of a benchmark: histories go in, questions are asked and answers judged, each of them once.

What came back is a row on the disk before the next question is asked. A run that was killed goes on behind its last
row; a question that was being asked then goes on as the run of the store that it is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from perdure.core.errors import InvalidInput, ModelError, ModelRateLimited, RunFailed
from perdure.core.ids import ConversationId
from perdure.core.incoming.backoff import backoff_s
from perdure.core.models import EXTRACTIVE, without_notice
from perdure.core.runs import Failure, Usage
from perdure.domain.conversations.units import ConversationChanges
from perdure.features.benchmarks.judging import WORD_JUDGES, JudgedAnswer, known_claims, verdict_of
from perdure.features.benchmarks.retrieval import ranks_of
from perdure.features.benchmarks.rows import ResultRows
from perdure.features.benchmarks.sets import DATA_SETS
from perdure.features.benchmarks.sets.values import Case, CaseQuestion, Progress, Setup
from perdure.features.benchmarks.systems import (
    AgentSystem,
    PlainSystem,
    System,
    WordIndex,
    plain_agent,
    search_by,
    system_of,
)
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply
from perdure.library.perdure import AsyncPerdure
from perdure.providers.retrying import ASKED_WAIT

T = TypeVar("T")

AGENT_TOKENS = 4_000
"""About what a request of an agent with memory takes beside what it remembers; it makes two for a question."""
ANSWER_TOKENS, JUDGE_TOKENS = 60, 250
BATCH_TURNS, BATCH_ANSWER_TOKENS = 8, 400
"""About what a model reads and writes at once when it extracts facts."""
MAX_STEPS = 12
SEARCH_TURNS = 100
FAILURES_IN_A_ROW = 3
RATE_TRIES, WAIT_MAX_S = 10, 300.0
"""How often a question is asked whose model is limited, and the longest wait in between."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is still to be asked, and about what it takes. `price` is in US dollars; None: not all prices are known."""

    questions: int
    input_tokens: int
    output_tokens: int
    price: float | None


@dataclass(frozen=True, slots=True)
class SystemQuestion:
    """A question for one system under one seed."""

    system: str
    seed: int
    case: Case
    question: CaseQuestion

    @property
    def key(self) -> str:
        """The key of its row."""
        return f"{self.system}/{self.seed}/{self.question.id}"


class BenchClock:
    """A clock set to the date of a question, so that "last week" in an old history is last week."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        """Return the time since the clock was set, added to the time it was set to."""
        return datetime.now(UTC) + self._ahead

    def set(self, at: datetime) -> None:
        """Set the time. Nothing may be running: a run would lose its lease."""
        self._ahead = at - datetime.now(UTC)


class Benchmark:
    """A benchmark that is being run: an open store, the rows, and the cases of each seed."""

    def __init__(self, perdure: AsyncPerdure, setup: Setup, rows: ResultRows, clock: BenchClock) -> None:
        self._perdure, self.setup, self.rows, self._clock = perdure, setup, rows, clock
        self.search_by = search_by(perdure)
        data_set = DATA_SETS[setup.name]
        first = data_set.load(setup, 1)
        ids = Counter(
            [case.id for case in first] + [f"{one.id} (question)" for case in first for one in case.questions]
        )
        if again := next((id_ for id_, count in ids.items() if count > 1), ""):
            raise InvalidInput(f"the data has {again} twice, so answers could not be told apart: remove one")
        self.cases = {1: [_chosen(setup, case) for case in first]}
        if not any(case.questions for case in self.cases[1]):
            kinds = sorted({question.kind for case in first for question in case.questions})
            raise InvalidInput(f"no question is left to ask: --kind can be {', '.join(kinds)}")
        for seed in range(2, setup.seeds + 1):
            cases = [_chosen(setup, case) for case in data_set.load(setup, seed)] if data_set.by_seed else self.cases[1]
            self.cases[seed] = cases
        self.systems: Mapping[str, System] = {name: system_of(name, perdure, setup) for name in setup.systems}
        self._failures = 0
        self.pause: Callable[[float], Awaitable[object]] = asyncio.sleep
        self._say: Callable[[str], None] = lambda text: None
        """Shows what is being waited for."""

    def all_questions(self) -> Iterator[SystemQuestion]:
        """Yield all questions, grouped by the history that they are about."""
        for seed, cases in self.cases.items():
            for case in cases:
                for system in self.systems:
                    yield from (SystemQuestion(system, seed, case, question) for question in case.questions)

    @property
    def questions(self) -> Sequence[CaseQuestion]:
        """All questions, each once."""
        found = {one.id: one for cases in self.cases.values() for case in cases for one in case.questions}
        return list(found.values())

    def claims(self) -> Sequence[JudgedAnswer]:
        """Return the answers that the judge is to rate: those of the systems, and those known to be wrong or right."""
        rows = ((one.question, self.rows.by_key[one.key]) for one in self.all_questions() if self._is_done(one.key))
        return [*(JudgedAnswer(question, row["answer"]) for question, row in rows), *known_claims(self.questions)]

    def estimate(self) -> Estimate:
        """Return what is still to be asked, by an upper estimate of the tokens of texts."""
        count = tokens = 0
        sizes: dict[tuple[str, str], int] = {}
        for one in self.all_questions():
            if self._is_done(one.key):
                continue
            if (place := (one.system, one.case.id)) not in sizes:
                sizes[place] = self._tokens(one)
            count, tokens = count + 1, tokens + sizes[place]
        cases = {one.case.id: one.case for one in self.all_questions() if self.setup.facts and one.system == "perdure"}
        unread = [case for id_, case in cases.items() if self.rows.find(f"facts/{id_}") is None]
        batches = sum(len(case.turns) // BATCH_TURNS + 1 for case in unread)
        tokens += batches * AGENT_TOKENS + sum(
            self._perdure.app.ports.counter.count(turn.text) for case in unread for turn in case.turns
        )
        said = count * ANSWER_TOKENS + batches * BATCH_ANSWER_TOKENS
        price = (
            self._price(self.setup.model, Usage(input_tokens=tokens, output_tokens=said)) if count or unread else 0.0
        )
        judged = 0
        if self.setup.judge not in WORD_JUDGES:
            judged = count + sum(not self.is_judged(claim) for claim in self.claims())
            usage = Usage(input_tokens=judged * JUDGE_TOKENS, output_tokens=judged * 5)
            cost = self._price(self.setup.judge, usage) if judged else 0.0
            price = None if price is None or cost is None else price + cost
        return Estimate(count + judged, tokens + judged * JUDGE_TOKENS, said + judged * 5, price)

    async def run(self, progress: Progress) -> None:
        """Ask what was not asked yet, and have it judged. Raises: InvalidInput, StoreError."""
        times = [turn.at for case in self.cases[1] for turn in case.turns]
        newest = max([*times, *(case.asked_at for case in self.cases[1] if case.asked_at)], default=datetime.now(UTC))
        groups: dict[datetime, dict[str, list[SystemQuestion]]] = {}
        for one in self.all_questions():  # those of one history follow one another, as they share its agent
            if not self._is_done(one.key):
                groups.setdefault(one.case.asked_at or newest, {}).setdefault(one.case.id, []).append(one)
        batches = {at: list(groups[at].values()) for at in sorted(groups)}
        await self._each(batches, self._answer, lambda one: f"{one.system}: {one.case.id}", progress)
        if self.setup.judge not in WORD_JUDGES:
            claims = {claim.key: claim for claim in self.claims() if not self.is_judged(claim)}
            await self._each({newest: [[one] for one in claims.values()]}, self._judge, lambda one: "judging", progress)

    async def _each(
        self,
        batches: Mapping[datetime, Collection[Sequence[T]]],
        work: Callable[[T], Awaitable[None]],
        name_of: Callable[[T], str],
        progress: Progress,
    ) -> None:
        """Work through all groups, by the time to which the clock is set, as many at the same time as the setup says.
        Raises what `work` raises first."""
        free, done = asyncio.Semaphore(self.setup.at_once), 0
        total = sum(len(group) for groups in batches.values() for group in groups)
        self._say = lambda text: progress(text, done, total)

        async def work_through(group: Sequence[T]) -> None:
            """Work through a group, in order."""
            nonlocal done
            async with free:
                for one in group:
                    progress(name_of(one), done, total)
                    await work(one)
                    done += 1

        try:
            for at, groups in batches.items():
                self._clock.set(at)
                async with asyncio.TaskGroup() as tasks:
                    for group in groups:
                        tasks.create_task(work_through(group))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _answer(self, one: SystemQuestion) -> None:
        """Ask a question of a system."""
        system = self.systems[one.system]
        agent, text = await system.prepare(one.case), system.text(one.case, one.question)
        if self.setup.facts and isinstance(system, AgentSystem) and self.rows.find(f"facts/{one.case.id}") is None:
            await self._extract(agent, one.case)
        await self._ask(one.key, agent, text, self.setup.model, one.seed, tools=system.tools, fork=self._forks(system))

    async def _extract(self, agent: AsyncAgent, case: Case) -> None:
        """Have the facts of a history extracted, and add the row of what that took; no question becomes a fact. Raises:
        InvalidInput: the model has failed."""
        try:
            await agent.facts.extract()
        except ModelError as error:
            what = f"{self.setup.model} reads no facts from {case.id}, so the run has stopped"
            raise InvalidInput(f"{what}: {error}. The same command goes on") from error
        await agent.facts.pause()
        counts = await agent.facts.counts()
        usage = Usage(input_tokens=counts.input_tokens, output_tokens=counts.output_tokens)
        took = {"usage": asdict(usage), "price": self._price(self.setup.model, usage)}
        self.rows.add(f"facts/{case.id}", facts=counts.facts, steps=counts.calls, **took)

    def _price(self, model: str, usage: Usage) -> float | None:
        """Return the price of requests in US dollars; None: it is not known."""
        return 0.0 if model == EXTRACTIVE else self._perdure.steps.prices_of(model).price(usage)

    async def _judge(self, claim: JudgedAnswer) -> None:
        """Ask the judge about a claim."""
        prompt = claim.question.prompt
        agent = await plain_agent(self._perdure, prompt, self.setup.judge, prompt)
        await self._ask(self._judge_key(claim), agent, claim.text, self.setup.judge, 1)

    async def search(self, progress: Progress) -> None:
        """Look for the evidence of each question, by Perdure's search and by words alone. Raises: StoreError."""
        done, total = 0, sum(len(case.questions) for case in self.cases[1])
        remembering = AgentSystem(self._perdure, self.setup)
        for case in self.cases[1]:
            questions = [one for one in case.questions if one.evidence or one.sessions]
            if all(self._is_done(f"search/bm25/{one.id}") for one in questions):
                continue
            progress(f"importing {case.id}", done, total)
            agent = await remembering.prepare(case)
            turns, index = await remembering.turns_of(agent, case), WordIndex(case.turns)
            for question in questions:
                progress(f"searching {case.id}", done, total)
                done += 1
                began = time.perf_counter()
                hits = await agent.search(question.text, limit=SEARCH_TURNS)
                found = ranks_of(question, [turns[hit.message.seq] for hit in hits])
                self.rows.add(f"search/perdure/{question.id}", latency_s=_seconds_since(began), **found)
                began = time.perf_counter()
                found = ranks_of(question, index.search(question.text)[:SEARCH_TURNS])
                self.rows.add(f"search/bm25/{question.id}", latency_s=_seconds_since(began), **found)

    def verdict(self, claim: JudgedAnswer) -> bool | None:
        """Return what the judge that is a model has said; None: nothing, or no verdict."""
        row = self.judge_row(claim)
        return None if row is None or "answer" not in row else verdict_of(row["answer"])

    def is_judged(self, claim: JudgedAnswer) -> bool:
        """Whether a claim has been judged; without a model all are."""
        return self.setup.judge in WORD_JUDGES or self._is_done(self._judge_key(claim))

    def judge_row(self, claim: JudgedAnswer) -> Mapping[str, Any] | None:
        """Return the row of a verdict, with tokens and price; None: there is none."""
        return self.rows.find(self._judge_key(claim))

    def _judge_key(self, claim: JudgedAnswer) -> str:
        """Return the key of the row of a verdict."""
        return f"judge/{self.setup.judge}/{claim.key}"

    def _is_done(self, key: str) -> bool:
        """Whether an answer came; one that failed is asked again."""
        row = self.rows.find(key)
        return row is not None and "failure" not in row

    def _forks(self, system: System) -> bool:
        """Whether a system is asked in a copy of the conversation with the history."""
        return self.setup.line == "fork" and isinstance(system, AgentSystem)

    def _tokens(self, one: SystemQuestion) -> int:
        """Return about how many tokens a question takes of a model, in all requests together."""
        count, system = self._perdure.app.ports.counter.count, self.systems[one.system]
        if isinstance(system, PlainSystem):
            return count(system.text(one.case, one.question)) + AGENT_TOKENS // 4
        if not self._forks(system):
            return 2 * AGENT_TOKENS
        app = self._perdure.app
        window = app.models.window_tokens(self.setup.model) or app.ports.settings.context_window_tokens
        history = sum(count(turn.text) for turn in one.case.turns)
        return 2 * min(window, AGENT_TOKENS + history)

    async def _ask(self, key: str, agent: AsyncAgent, text: str, model: str, seed: int, **more: Any) -> None:
        """Ask an agent as `_ask_once` does, and where its provider limits the rate, again after a wait. Raises:
        InvalidInput: the model has failed three times without an answer in between."""
        tries = 0
        while (failure := await self._ask_once(key, agent, text, model, seed, **more)) is not None:
            tries += 1
            asked = ASKED_WAIT.search(failure.message)
            wait_s = max(backoff_s(tries, first_s=10, most_s=WAIT_MAX_S), float(asked[1]) if asked else 0)
            if failure.kind != ModelRateLimited.kind or tries == RATE_TRIES or wait_s > WAIT_MAX_S:
                break
            self._say(f"{model} limits the rate: waiting {wait_s:,.0f} s")
            await self.pause(wait_s)
        self._failures = 0 if failure is None else self._failures + 1
        if failure is not None and self._failures == FAILURES_IN_A_ROW:
            what = f"{model} gives no answers, so the run has stopped: {failure.message}"
            raise InvalidInput(f"{what}. The same command goes on")

    async def _ask_once(
        self,
        key: str,
        agent: AsyncAgent,
        text: str,
        model: str,
        seed: int,
        *,
        tools: Sequence[str] | None = None,
        fork: bool = False,
    ) -> Failure | None:
        """Ask an agent in a new conversation and store the answer's row; return why there is none, or None."""
        before = self.rows.by_key.get(key)
        goes_on = before is not None and "began" in before
        attempt = 1 if before is None else before["attempt"] + (not goes_on)
        if before is not None and goes_on:
            conversation = ConversationId(before["began"])
        else:
            conversation = await self._conversation(agent, model, seed, fork=fork)
            self.rows.add(key, began=conversation, attempt=attempt)
        began, failure = time.perf_counter(), None
        try:
            name = f"bench {key} {attempt}"
            reply = await agent.send(
                text, conversation=conversation, idempotency_key=name, max_steps=MAX_STEPS, tools=tools or None
            )
        except RunFailed as error:
            reply = error.reply
            # What the model itself got wrong, such as an empty answer, is an answer: asked again it would come again.
            failure = reply.failure or Failure(kind=reply.stop_reason, message=str(error))
            failure = None if reply.stop_reason == "invalid_llm_response" else failure
        latency_s = None if goes_on else _seconds_since(began)
        await agent.reset(conversation=conversation)  # what was asked is no memory for the next question
        self.rows.add(
            key,
            answer=_answer_of(reply),
            attempt=attempt,
            run=reply.run_id,
            steps=reply.step_count,
            latency_s=latency_s,
            usage=asdict(reply.usage),
            price=self._price(model, reply.usage),
            **({"failure": failure.message} if failure else {}),
        )
        return failure

    async def _conversation(self, agent: AsyncAgent, model: str, seed: int, *, fork: bool) -> ConversationId:
        """Return a new conversation of an agent, or a copy of its first, with the options of a seed."""
        found = await agent.fork_conversation() if fork else await agent.new_conversation()
        takes_seed = model != EXTRACTIVE and not model.startswith(("anthropic/", "google", "bedrock"))
        field = "random_seed" if model.startswith("mistral/") else "seed"
        options: dict[str, Any] = {"temperature": 0.0, **({"extra": {field: seed}} if takes_seed else {})}
        await agent.change_conversation(found.id, ConversationChanges(options=options))
        return found.id


def _answer_of(reply: Reply) -> str:
    """Return the last text of a reply; before it may stand what a model says beside a tool call."""
    said = [message.text for message in reply.messages if message.role == "assistant" and message.text]
    return without_notice(said[-1]) if said else ""


def _chosen(setup: Setup, case: Case) -> Case:
    """Return a case with the questions that are to be asked."""
    questions = [question for question in case.questions if not setup.kinds or question.kind in setup.kinds]
    return replace(case, questions=questions[: setup.most or None])


def _seconds_since(began: float) -> float:
    """Return the seconds since a time of the performance counter."""
    return round(time.perf_counter() - began, 4)
