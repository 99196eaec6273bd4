"""Extraction in the background, for all conversations of a process.

A conversation is looked at when a batch of it is full by this process's count, and at a pause. Then it waits for a
moment in which this process answers nobody. What fails is tried again later, a few times, and then passed over.
"""

from __future__ import annotations

import asyncio
import logging

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationKey
from perdure.core.errors import ModelError, NotFound, PerdureError, StoreError
from perdure.engine.log.run_log import RunLog
from perdure.engine.workers.background import CallPostponed, KeyedWorker
from perdure.engine.workers.worker import Worker
from perdure.features.facts.extraction.extract import extract_due, extract_singly
from perdure.features.facts.extraction.extractors import FactPorts, extract_nothing
from perdure.features.facts.extraction.waiting import TRIES, ConversationBacklog
from perdure.features.facts.fading.passes import ForgettingWork
from perdure.features.facts.tables import Episodes
from perdure.features.facts.units.turns import is_turn
from perdure.features.facts.values.settings import load_agent_facts

log = logging.getLogger(__name__)

AT_CLOSE_S = 0.5
"""How long a closing process extracts what waits, batch by batch: an imported history takes minutes."""
LEFT_MESSAGES = 1_000
"""How many of the newest messages a starting process searches for conversations that wait for extraction."""


class Extractions:
    """The background work of one process that extracts facts, and lets them fade."""

    def __init__(self, app: App) -> None:
        self.ports = ports = FactPorts.of(app)
        self._waiting, self._pauses = ports.waiting, app.runner.pauses
        self._worker = KeyedWorker("facts", self._work)
        self._forgetting = ForgettingWork(ports)
        self._tidying = KeyedWorker("fading", self._forgetting.tidy_due)
        self._starter = Worker("looking for conversations that wait for extraction", self.note_unread, None)
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        if ports.find_extractor is not extract_nothing:
            self._waiting.wake = self._wake
        ports.unread.listeners.append(self._waiting.note)
        app.runner.after_runs.listeners.append(self.note_run)
        app.runner.after_runs.parts.append(self)  # which closes this object, after the last run

    async def start(self) -> None:
        """Look once for conversations that an earlier process left unread."""
        await self._starter.start()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that extract, or let facts fade, now."""
        return [*self._worker.tasks, *self._tidying.tasks]

    def note_run(self, conversation_key: ConversationKey, agent: Agent | None, ended: RunLog) -> None:
        """Note what a run, by its log, has added to a conversation, and extract in the background if that makes a full
        batch. Without an `agent` this process does not know its settings, and takes the defaults."""
        facts = load_agent_facts({} if agent is None else agent.settings)
        if self._waiting.wake is None or facts.capture == "off":
            if facts.forgetting.on:  # else a pass follows the extraction
                self._tidying.start(conversation_key[0])
            return
        turns = [message for message in ended.messages if is_turn(message)]
        self._waiting.note(conversation_key, turns=len(turns), tokens=sum(turn.tokens for turn in turns))
        backlog = self._waiting.backlogs[conversation_key]
        if not backlog.tries and (backlog.turns >= facts.batch_turns or backlog.tokens >= facts.batch_tokens):
            self._worker.start(conversation_key)

    async def note_unread(self) -> None:
        """Note conversations that an earlier process left unread, for the next pause. Raises: StoreError."""
        if self._waiting.wake is not None:
            for conversation_key in await self.ports.store.read(
                lambda tx: tx.of(Episodes).list_behind(limit=LEFT_MESSAGES)
            ):
                self._waiting.note(conversation_key)

    async def close(self) -> None:
        """Extract what waits for at most `AT_CLOSE_S`, if the settings say so, then end all tasks."""
        self._closing = True
        await self._starter.close()
        self._pauses.end()
        if self._timer is not None:
            self._timer.cancel()
        if self.ports.settings.extract_at_close:
            for conversation_key, backlog in self._waiting.backlogs.items():
                if not backlog.tries:
                    backlog.due_at = 0.0
                    self._worker.start(conversation_key)
            if self._worker.tasks:
                await asyncio.wait(self._worker.tasks, timeout=AT_CLOSE_S)
            self._waiting.taken.update(self._waiting.backlogs)  # a long backlog goes on in the next process
        await self._worker.close()
        await self._tidying.close()

    def _wake(self, conversation_key: ConversationKey, now: bool) -> None:
        """Have a conversation extracted at its next pause, or with `now` at once."""
        if self._closing:
            return
        backlog, time = self._waiting.backlogs[conversation_key], asyncio.get_running_loop().time()
        if not backlog.tries:  # what failed keeps its time
            backlog.due_at = time if now else time + self.ports.settings.extraction_pause_s
            if now:
                self._worker.start(conversation_key)
        self._set_timer(self.ports.settings.extraction_pause_s)

    def _set_timer(self, seconds: float) -> None:
        """Look at all conversations in so many seconds, or earlier if a look is planned already."""
        if self._timer is None and not self._closing:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Start extracting the conversations that are due, and plan the next look."""
        self._timer = None
        time, pause_s = asyncio.get_running_loop().time(), self.ports.settings.extraction_pause_s
        for conversation_key, backlog in self._waiting.backlogs.items():
            if backlog.due_at <= time:
                self._worker.start(conversation_key)
        later = [backlog.due_at - time for backlog in self._waiting.backlogs.values() if backlog.due_at > time]
        if self._waiting.backlogs:
            self._set_timer(min(later, default=pause_s))

    async def _work(self, conversation_key: ConversationKey) -> None:
        """Extract what is due in a conversation; after an error it is due again later."""
        backlog, time = self._waiting.backlogs.get(conversation_key), asyncio.get_running_loop().time()
        if backlog is None:
            return
        rest = backlog.due_at <= time
        if backlog.tries and not rest:
            return
        backlog.turns = backlog.tokens = 0
        try:
            await extract_due(self.ports, conversation_key, rest=rest, piece=self._pauses.piece)
            await self._forgetting.tidy_due(conversation_key[0])
        except NotFound:  # the agent was deleted meanwhile
            self._waiting.backlogs.pop(conversation_key, None)
        except StoreError as error:
            self._retry(conversation_key, backlog, error)
        except CallPostponed:
            raise
        except Exception as error:
            backlog.tries += 1
            if backlog.tries < TRIES:
                self._retry(conversation_key, backlog, error)
            else:
                await self._extract_singly(conversation_key, backlog, error, rest=rest)
        else:
            backlog.tries = 0
            if rest and backlog.due_at <= time and conversation_key not in self._waiting.taken:
                self._waiting.backlogs.pop(conversation_key, None)

    def _retry(self, conversation_key: ConversationKey, backlog: ConversationBacklog, error: Exception) -> None:
        """Have a conversation that failed extracted later, each time four times as late; log the first failure."""
        wait_s = self.ports.settings.extraction_retry_s * 4 ** max(0, backlog.tries - 1)
        backlog.due_at = asyncio.get_running_loop().time() + wait_s
        if backlog.tries <= 1:
            text = "facts of conversation %s of %s wait, and are tried again in %g s: %s: %s"
            about = (conversation_key[1], conversation_key[0], wait_s, type(error).__name__, error)
            log.warning(text, *about, exc_info=None if isinstance(error, PerdureError) else error)
        self._set_timer(wait_s)

    async def _extract_singly(
        self, conversation_key: ConversationKey, backlog: ConversationBacklog, error: Exception, *, rest: bool
    ) -> None:
        """Leave out those turns of a batch that fail also alone, after all of it failed often with `error`."""
        try:
            turns = await extract_singly(self.ports, conversation_key, rest=rest, last=True)
        except NotFound:
            self._waiting.backlogs.pop(conversation_key, None)
        except StoreError as trouble:
            backlog.tries -= 1
            self._retry(conversation_key, backlog, trouble)
        except ModelError as trouble:
            self._retry(conversation_key, backlog, trouble)
        else:
            if turns:
                text = "%d turns of conversation %s of %s are left out of facts after %d tries: %s"
                log.warning(text, turns, conversation_key[1], conversation_key[0], backlog.tries, error)
            backlog.tries = 0
            backlog.due_at = asyncio.get_running_loop().time()
            self._worker.start(conversation_key)
