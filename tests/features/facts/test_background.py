"""When conversations are extracted: a batch at a time, at pauses, resets and closes, and never while a user waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import ModelUnreachable
from perdure.features.facts.extraction.waiting import TRIES
from perdure.features.facts.extraction.worker import Extractions
from perdure.features.facts.values.extraction import ExtractedEntity, ExtractedFact, Extraction, ReadBatch
from perdure.features.facts.values.facts import GraphCounts
from perdure.library.agent import AsyncAgent
from perdure.library.agents.identities import IdentityFields
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.support.library import MODEL, SlowSpeaker
from tests.support.passing_time import time_passes

PAUSE_S, QUIET_S = 31.0, 0.2
SLOW = "test/slow"


class Scribe:
    """`Extractor` that notes each turn as a fact of its speaker, and remembers what it read.

    It fails with `failures`, one after the other, before it answers; it waits until `open` is set.
    """

    def __init__(self, *failures: Exception, repeat: Exception | None = None) -> None:
        self.batches: list[ReadBatch] = []
        self.failures = list(failures)
        self.repeat = repeat
        self.open = asyncio.Event()
        self.open.set()

    @property
    def texts(self) -> list[list[str]]:
        return [[turn.text for turn in batch.turns] for batch in self.batches]

    async def extract(self, batch: ReadBatch) -> Extraction:
        self.batches.append(batch)
        await self.open.wait()
        if self.failures or self.repeat:
            raise self.failures.pop(0) if self.failures else self.repeat  # type: ignore[misc]
        texts = {turn.number: turn.text for turn in batch.turns}
        return Extraction(
            entities=[ExtractedEntity(name=name) for name in ("Ada", *texts.values())],
            facts=[
                ExtractedFact(subject="Ada", relation="SAID", object=text, text=f"Ada said {text}.", turns=(number,))
                for number, text in texts.items()
            ],
            model="test/scribe",
            calls=1,
            input_tokens=10,
            output_tokens=2,
        )


class Pausing(Scribe):
    """One that lets others work before each batch."""

    async def extract(self, batch: ReadBatch) -> Extraction:
        await asyncio.sleep(0)
        return await super().extract(batch)


@asynccontextmanager
async def opened(
    scribe: Scribe,
    *script: Any,
    speaker: SlowSpeaker | None = None,
    store: Path | None = None,
    at_close: bool = False,
    **changes: Any,
) -> AsyncIterator[AsyncPerdure]:
    """A library whose conversations the scribe extracts; `speaker` is the model `SLOW`."""
    settings = replace(Settings(model=MODEL, embedding="none"), **changes)
    own = InlineStore(store or ":memory:")
    models = {MODEL: ScriptedModel(*script), SLOW: speaker or ScriptedModel()}
    async with await AsyncPerdure.open(store=own, models=models, settings=settings) as perdure:
        ports = perdure.app.service(Extractions).ports
        object.__setattr__(ports, "find_extractor", lambda setting, model: scribe)
        object.__setattr__(ports, "settings", replace(ports.settings, extract_at_close=at_close))
        yield perdure


async def settled(perdure: AsyncPerdure) -> None:
    """Let nobody be answered until no extraction goes on; return then."""
    await steps()
    while perdure.app.service(Extractions).tasks:
        time_passes(QUIET_S)
        await steps()


async def steps() -> None:
    """Let the loop take some steps."""
    for _ in range(20):
        await asyncio.sleep(0)


async def pause(perdure: AsyncPerdure, seconds: float = PAUSE_S) -> None:
    """Let so much time pass."""
    time_passes(seconds)
    await asyncio.sleep(0.001)
    await settled(perdure)


async def said(agent: AsyncAgent) -> list[str]:
    """The texts of the agent's facts, the oldest first."""
    return [hit.fact.text for hit in reversed(await agent.facts.list())]


async def test_eight_turns_are_one_call_and_what_is_left_follows_at_a_pause() -> None:
    scribe = Scribe()
    async with opened(scribe) as perdure:
        agent = await perdure.create_agent()
        for number in range(5):
            await agent.send(f"message {number}")
            await settled(perdure)
            assert len(scribe.batches) == (number >= 3)

        await pause(perdure, 10)
        assert len(scribe.batches) == 1
        await pause(perdure)

        assert [len(batch.turns) for batch in scribe.batches] == [8, 2]
        await pause(perdure)
        assert len(scribe.batches) == 2
        counts = await agent.facts.counts()
        assert (counts.calls, counts.input_tokens, counts.output_tokens) == (2, 20, 4)


async def test_two_thousand_tokens_are_a_batch() -> None:
    scribe = Scribe()
    async with opened(scribe) as perdure:
        agent = await perdure.create_agent()
        await agent.send("word " * 3_000)
        await settled(perdure)

        assert len(scribe.batches) == 1


async def test_a_message_waits_for_no_extraction() -> None:
    """None begins while messages follow each other, and one that hangs keeps none waiting."""
    scribe = Scribe()
    scribe.open.clear()
    async with opened(scribe) as perdure:
        agent = await perdure.create_agent()
        for number in range(6):
            await agent.send(f"message {number}")
            await steps()
        assert scribe.batches == []
        time_passes(QUIET_S)
        await steps()
        assert len(scribe.batches) == 1
        for number in range(6, 12):
            async with asyncio.timeout(5):
                await agent.send(f"message {number}")
        assert len(perdure.app.service(Extractions).tasks) == 1
        scribe.open.set()
        await settled(perdure)

        assert [len(batch.turns) for batch in scribe.batches] == [8, 8, 8]


async def test_what_somebody_asks_for_is_not_extracted_twice() -> None:
    """The background leaves it, and goes on afterwards."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        for number in range(12):
            await agent.send(f"message {number}")
        scribe.open.clear()
        asked = asyncio.create_task(agent.facts.extract())
        await steps()
        time_passes(QUIET_S)
        await steps()
        assert len(scribe.batches) == 1
        scribe.open.set()
        await asked
        await settled(perdure)
        assert [len(batch.turns) for batch in scribe.batches] == [8, 8, 8]
        await agent.send("one more")
        await pause(perdure)

        assert scribe.texts[3:] == [["one more", "OK."]]


async def test_a_process_that_never_pauses_extracts_too() -> None:
    """Another agent's run goes on, and somebody waits for it; and what was extracted makes the next one wait."""
    speaker = SlowSpeaker("Done.")
    async with opened(scribe := Scribe(), speaker=speaker) as perdure:
        busy, agent = await perdure.create_agent("busy", model=SLOW), await perdure.create_agent("ada")
        running = asyncio.create_task(busy.send("take your time"))
        await speaker.speaking.wait()
        for number in range(4):
            await agent.send(f"message {number}")
        time_passes(9)
        await steps()
        assert scribe.batches == []
        for _ in range(5):
            time_passes(2)
            await steps()

        assert [len(batch.turns) for batch in scribe.batches] == [8]
        speaker.go.set()
        await running


async def test_a_run_is_read_when_it_has_ended() -> None:
    """Though somebody asks for extraction before; it may still be changed, or void."""
    speaker = SlowSpeaker("Done.")
    async with opened(scribe := Scribe(), speaker=speaker) as perdure:
        agent = await perdure.create_agent(model=SLOW)
        running = asyncio.create_task(agent.send("take your time"))
        await speaker.speaking.wait()
        await agent.facts.extract()
        assert scribe.texts == []

        speaker.go.set()
        await running
        await agent.facts.extract()
        assert scribe.texts == [["take your time", "Done."]]


async def test_runs_below_a_batch_read_nothing() -> None:
    """The check after a run counts in the process."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        for number in range(3):
            await agent.send(f"message {number}")

            assert perdure.app.service(Extractions).tasks == []
        assert scribe.batches == []


@pytest.mark.parametrize("deleted", [False, True])
async def test_what_was_said_before_a_reset_is_extracted(deleted: bool) -> None:
    """Also the conversation that is deleted; the facts stay, for they are memory."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        conversation = await agent.new_conversation()
        await agent.send("I moved", conversation=conversation.id)
        if deleted:
            await agent.delete_conversation(conversation.id)
        else:
            await agent.reset(conversation=conversation.id)
        await settled(perdure)

        assert scribe.texts == [["I moved", "OK."]]
        assert await said(agent) == ["Ada said I moved.", "Ada said OK.."]


async def test_a_quick_extractor_extracts_what_waits_when_the_program_ends(tmp_path: Path) -> None:
    scribe = Scribe()
    async with opened(scribe, store=tmp_path / "store.db", at_close=True) as perdure:
        await (await perdure.create_agent("ada")).send("I moved")

    assert scribe.texts == [["I moved", "OK."]]


@pytest.mark.slow
async def test_a_program_that_ends_does_not_wait_for_a_long_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An imported history goes on in the next process, where this one stopped."""
    monkeypatch.setattr("perdure.features.facts.extraction.worker.AT_CLOSE_S", 0.0)
    scribe, store = Pausing(), tmp_path / "store.db"
    async with opened(scribe, store=store, at_close=True) as perdure:
        agent = await perdure.create_agent("ada")
        at = datetime(2026, 1, 1, tzinfo=UTC)
        await agent.import_messages([("user", None, f"I saw {number}", at) for number in range(200)])
        await agent.send("I moved")

    assert len(scribe.batches) < 5
    before = [text for texts in scribe.texts for text in texts]
    async with opened(scribe, store=store) as perdure:
        await asyncio.sleep(0.001)
        await pause(perdure)
        texts = [text for texts in scribe.texts for text in texts]
        assert len(texts) == len({*texts}) == 202 and texts[: len(before)] == before


async def test_what_a_process_left_is_extracted_by_the_next_one(tmp_path: Path) -> None:
    """At its first pause, from the newest messages of the store."""
    async with opened(scribe := Scribe(), store=tmp_path / "store.db") as perdure:
        await (await perdure.create_agent("ada")).send("I moved")
    assert scribe.batches == []

    async with opened(scribe, store=tmp_path / "store.db") as perdure:
        await asyncio.sleep(0.001)
        await pause(perdure)
        assert scribe.texts == [["I moved", "OK."]]
        assert perdure.app.service(Extractions).ports.waiting.backlogs == {}


async def test_ephemeral_and_bypassed_conversations_are_not_extracted() -> None:
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent(settings={"bypass_session_patterns": ["secret*"]})
        for summary in ("secret plans", "open plans"):
            conversation = await agent.new_conversation(summary=summary)
            await agent.send(summary, conversation=conversation.id)
        ephemeral = (await perdure.conversations.create_ephemeral(MODEL, "Be brief.")).conversation
        await (await perdure.agent(ephemeral.agent_id)).send("ephemeral", conversation=ephemeral.id)
        await pause(perdure)

        assert scribe.texts == [["open plans", "OK."]]


async def test_a_captured_turn_is_read_as_a_message_only() -> None:
    """Its passage says the same once more."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent(settings={"auto_capture": {"commit_token_threshold": 50}})
        text = "I moved to a house with a garden near the harbour. " * 6
        await agent.send(text)
        await perdure.app.runner.after_runs.captures.close()
        assert len(await agent.passages()) == 1
        await agent.facts.extract()

        assert scribe.texts == [[text, "OK."]]


async def test_each_speaker_of_a_batch_is_looked_up() -> None:
    """Though no text names it."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        await agent.facts.add("Bea likes tea.", subject="Bea", relation="LIKES", object="tea")
        await agent.facts.pause()
        for actor in ("Carl", "Bea"):
            await agent.facts.ingest("I moved", scope={"actor_id": actor})
        await agent.facts.resume()
        await agent.facts.extract()

        assert [turn.speaker for turn in scribe.batches[0].turns] == ["Carl", "Bea"]
        assert "Bea" in [entity.name for entity in scribe.batches[0].entities]


async def test_long_texts_that_waited_are_read_one_by_one() -> None:
    """As many as a model reads well; one alone may be longer."""
    texts = [f"{number} {'tea ' * 1_500}".strip() for number in range(2)] + ["3 tea", "4 " + "rye " * 2_500]
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        await agent.facts.ingest("figs")
        await agent.facts.pause()
        for text in texts:
            await agent.facts.ingest(text)
        await agent.facts.resume()
        scribe.batches.clear()
        await agent.facts.extract()

        read = [text.strip() for batch in scribe.texts for text in batch]
        assert read == [text.strip() for text in texts]
        assert [len(batch) for batch in scribe.texts] == [1, 2, 1]


@pytest.mark.parametrize(("names", "speaker"), [(["Ada"], "Ada"), (["Ada", "Bea"], "User")])
async def test_of_several_identities_none_is_the_speaker(names: list[str], speaker: str) -> None:
    """Which of them speaks, nobody said."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        for name in names:
            fields = IdentityFields(identifier_key=name, name=name, identity_type="user", agent_ids=[agent.id])
            await perdure.identities.create(fields)
        await agent.send("I moved")
        await agent.facts.extract()

        assert scribe.batches[0].turns[0].speaker == speaker


async def test_capture_is_on_off_or_only_proposes() -> None:
    """Proposed facts are believed when they are accepted, and gone when they are rejected."""
    async with opened(scribe := Scribe()) as perdure:
        off = await perdure.create_agent(settings={"facts": {"capture": "off"}})
        ask = await perdure.create_agent(settings={"facts": {"capture": "ask"}})
        await off.send("I moved")
        await ask.send("I moved")
        await pause(perdure)

        assert [batch.turns[0].text for batch in scribe.batches] == ["I moved"]
        assert await said(ask) == []
        one, other = await ask.facts.list(states=["proposed"])
        await ask.facts.update(one.fact.id, state="active")
        await ask.facts.delete(other.fact.id)
        assert await said(ask) == [one.fact.text]
        assert await ask.facts.list(states=["proposed"]) == []


async def test_a_paused_graph_waits() -> None:
    """What was said meanwhile is extracted when it goes on."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        await agent.facts.pause()
        await agent.send("I moved")
        await pause(perdure)
        assert scribe.batches == []
        await agent.facts.resume()
        await agent.send("I am here")
        await pause(perdure)

        assert scribe.texts == [["I moved", "OK.", "I am here", "OK."]]


async def test_what_fails_is_tried_again_later_and_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    """No run starts another try meanwhile; one line of the log says so."""
    scribe = Scribe(*[ModelUnreachable("the model is down")] * 2)
    async with opened(scribe) as perdure:
        agent = await perdure.create_agent()
        for number in range(4):
            await agent.send(f"message {number}")
        await settled(perdure)
        assert len(scribe.batches) == 1
        for number in range(4, 12):
            await agent.send(f"message {number}")
        await settled(perdure)
        assert len(scribe.batches) == 1
        await pause(perdure)
        assert len(scribe.batches) == 2
        await pause(perdure)
        assert len(scribe.batches) == 2
        await pause(perdure, 120)

        assert len(await agent.facts.list()) == 13  # twelve messages and one answer that is always the same
        assert [record.levelno for record in caplog.records if "wait" in record.message] == [logging.WARNING]


async def test_a_batch_that_fails_too_often_is_passed_over_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    scribe = Scribe(*[RuntimeError("a defect")] * TRIES)
    async with opened(scribe) as perdure:
        agent = await perdure.create_agent(settings={"facts": {"batch_turns": 2}})
        await agent.send("poison")
        await settled(perdure)
        for _ in range(TRIES - 1):
            await pause(perdure, 10_000)
        assert len(scribe.batches) == TRIES
        await agent.send("I moved")
        await settled(perdure)

        assert scribe.texts[TRIES:] == [["I moved", "OK."]]
        assert await agent.facts.counts() == GraphCounts(
            facts=2, entities=3, episodes=2, dropped={"extraction failed": 2}, calls=1, input_tokens=10, output_tokens=2
        )
        assert len([record for record in caplog.records if "left out" in record.message]) == 1


async def test_an_answer_without_json_is_asked_for_again() -> None:
    """And one that takes too long."""
    model = ScriptedModel(extracts=says("I can't."))
    settings = Settings(model=MODEL, embedding="none", facts="model")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as perdure:
        agent = await perdure.create_agent()
        await agent.send("I moved")
        for _ in range(TRIES):
            await pause(perdure, 10_000)

        assert len(model.extraction_requests) == TRIES
        assert (await agent.facts.counts()).dropped == {"extraction failed": 2}


async def test_tool_results_are_no_turns_and_what_follows_them_is_not_the_users() -> None:
    async with opened(
        scribe := Scribe(), calls("archival_memory_search", query="rent"), says("The rent is 900.")
    ) as perdure:
        agent = await perdure.create_agent(tools=["archival_memory_search"])
        await agent.archive("The landlord asks for 900.")
        await agent.send("What is the rent?")
        await perdure.app.service(Extractions).close()
        await agent.facts.extract()

        assert scribe.texts[0] == ["What is the rent?", "The rent is 900."]
        assert [turn.trust == "user" for turn in scribe.batches[0].turns] == [True, False]


async def test_what_the_web_says_stays_of_the_web() -> None:
    async with opened(Scribe()) as perdure:
        agent = await perdure.create_agent()
        (hit,) = await agent.facts.ingest("rents rise", trust="web")

        assert hit.fact.trust == "web"
