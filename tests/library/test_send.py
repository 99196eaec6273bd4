"""A message and its reply: what is kept, what is refused, what is never done twice."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    AsyncPerdure,
    ConversationBusy,
    InvalidInput,
    ModelReply,
    ModelRequest,
    NotFound,
    Perdure,
    PerdureError,
    Reasoning,
    RunFailed,
    Settings,
    StoreFull,
    Text,
)
from perdure.core.errors import EmptyMessage, IdempotencyMismatch, MessageTooLarge, ModelNotFound
from perdure.core.ids import ConversationId
from perdure.core.messages import Image, images_of
from perdure.core.runs import Usage
from perdure.storage.database.sqlite_errors import store_error
from perdure.testing import InlineStore, ScriptedModel, calls, fails, says, thinks
from perdure.testing.inline_store import FaultPoint
from tests.support.library import MODEL, SlowSpeaker, open_async, open_sync


def test_a_reply_tells_what_its_run_did(tmp_path: Path) -> None:
    """Text, messages in order, memory edits, usage summed over the steps, and why it stopped."""
    script = (calls("memory_insert", label="human", new_string="Ada"), thinks("be kind", says("Hello Ada.")))
    with open_sync(tmp_path / "agents.db", *script) as perdure:
        agent = perdure.create_agent()

        reply = agent.send("I am Ada.")

        assert (reply.text, reply.stop_reason, reply.step_count) == ("Hello Ada.", "end_turn", 2)
        assert [message.role for message in reply.messages] == ["user", "assistant", "tool", "assistant"]
        assert [(edit.label, edit.version) for edit in reply.edits] == [("human", 1)]
        assert reply.usage == Usage(input_tokens=20, output_tokens=7)
        assert agent.run(reply.run_id).status == "completed"
        assert tuple(agent.messages()) == reply.messages


def test_the_same_key_is_the_same_run(tmp_path: Path) -> None:
    """A repeated message is not said twice: the second call gets the first one's reply, also after a restart."""
    with open_sync(tmp_path / "agents.db", says("first"), says("second")) as perdure:
        agent = perdure.create_agent("helper")
        first = agent.send("hello", idempotency_key="k")
        assert agent.send("hello", idempotency_key="k") == first
    with open_sync(tmp_path / "agents.db", says("third")) as perdure:
        agent = perdure.agent("helper")
        assert agent.send("hello", idempotency_key="k") == first

        assert [message.text for message in agent.messages()] == ["hello", "first"]


def test_a_key_belongs_to_one_message_of_one_conversation(tmp_path: Path) -> None:
    """Another text under a used key is refused; the same key elsewhere is another message."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        first = agent.send("hello", idempotency_key="k")
        with pytest.raises(IdempotencyMismatch, match="'k'"):
            agent.send("goodbye", idempotency_key="k")

        elsewhere = agent.send("goodbye", idempotency_key="k", conversation=agent.new_conversation().id)
        assert elsewhere.run_id != first.run_id


def test_a_run_ends_at_its_step_limit(tmp_path: Path) -> None:
    """A model that calls tools for ever is stopped, says so, and the next message is answered."""
    with open_sync(tmp_path / "agents.db", *[calls("conversation_search", query="x")] * 3) as perdure:
        agent = perdure.create_agent()

        reply = agent.send("search", max_steps=3)

        assert (reply.stop_reason, reply.step_count, reply.text) == ("max_steps", 3, "")
        assert agent.send("and now?").text == "OK."
        for max_steps in (0, -1, 1_000_000):
            with pytest.raises(InvalidInput, match="max_steps"):
                agent.send("hello", max_steps=max_steps)


def test_a_failing_model_loses_no_message(tmp_path: Path) -> None:
    """The caller is told why, the message stands in the history, and the next one is answered with it in view."""
    model = ScriptedModel(fails("the provider is down"), says("Both heard."))
    with Perdure(tmp_path / "agents.db", models={MODEL: model}) as perdure:
        agent = perdure.create_agent(model=MODEL)

        with pytest.raises(RunFailed, match="llm_api_error: the provider is down") as failed:
            agent.send("one")

        assert agent.run(failed.value.run_id).status == "failed"  # type: ignore[arg-type]
        assert agent.send("two").text == "Both heard."
        assert [message.text for message in agent.messages()] == ["one", "two", "Both heard."]
        assert [message.text for message in model.requests[1].messages] == ["one", "two"]


@pytest.mark.uses("extractive")
def test_a_model_that_is_not_here_is_named(tmp_path: Path) -> None:
    """A message to an agent whose model another program brought along is refused, naming the models there are."""
    with open_sync(tmp_path / "agents.db") as perdure:
        perdure.create_agent("helper", model=MODEL)

    told = f"'{MODEL}' is not available here: there are perdure/extractive"
    with Perdure(tmp_path / "agents.db") as perdure, pytest.raises(ModelNotFound, match=told):
        perdure.agent("helper").send("hello")


def test_a_run_is_its_own_agent_s_alone(tmp_path: Path) -> None:
    """Another agent can neither follow nor cancel nor look at it, as if it were not there."""
    with open_sync(tmp_path / "agents.db") as perdure:
        one, two = perdure.create_agent("one"), perdure.create_agent("two")
        run_id = one.send("hello").run_id

        for ask in (two.run, two.cancel, lambda run: list(two.follow(run))):
            with pytest.raises(NotFound, match="agent 'two' has no such run"):
                ask(run_id)
        assert one.cancel(run_id).stop_reason == "end_turn"


async def test_a_store_that_fails_after_the_message_was_accepted_says_that_it_is_kept() -> None:
    """The same error class as before, but not the advice to send again: that would say the message twice."""
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorname = "SQLITE_FULL"
    failing = False

    async def fault(point: FaultPoint) -> None:
        if failing and point == "write":
            raise store_error(full, Path("agents.db"))

    def fill_the_disk(request: ModelRequest) -> ModelReply:
        nonlocal failing
        failing = True
        return says("too late")

    store, models = InlineStore(fault=fault), {MODEL: ScriptedModel(fill_the_disk)}
    async with await AsyncPerdure.open(store=store, models=models, settings=Settings(model=MODEL)) as perdure:
        agent = await perdure.create_agent()
        with pytest.raises(StoreFull) as raised:
            await agent.send("hello")
        with pytest.raises(StoreFull, match="nothing of this was written"):
            await agent.send("again")
        failing = False

        kept = await agent.messages()
        assert [message.text for message in kept] == ["hello"]
        assert str(raised.value) == (
            f"the message is kept ({kept[0].run_id}) and will be answered when the store can be written again:"
            " no space left for agents.db: free some; don't send it again without its idempotency key"
        )


@pytest.mark.parametrize("if_busy", ["queue", "", None])
def test_an_unknown_way_to_be_busy_is_refused(tmp_path: Path, if_busy: Any) -> None:
    """The error names the two there are, and nothing is said."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        with pytest.raises(InvalidInput, match=r"if_busy is .*: it can be 'wait', 'reject'"):
            agent.send("hello", if_busy=if_busy)

        assert agent.message_count() == 0


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000"])
def test_an_empty_message_is_refused(tmp_path: Path, text: str) -> None:
    """White space alone says nothing; nothing of it is stored."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        with pytest.raises(EmptyMessage, match="empty"):
            agent.send(text)

        assert agent.messages() == []


def test_a_message_over_the_limit_is_refused_at_once(tmp_path: Path) -> None:
    """Ten megabytes are not stored, the error names size and limit, and it takes no time."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        began = time.process_time()
        with pytest.raises(MessageTooLarge, match=r"10,485,760 characters, the limit is 500,000"):
            agent.send("x" * 10 * 1024 * 1024)

        assert time.process_time() - began < 5
        assert agent.messages() == []
        assert agent.send("x" * 500_000).text == "OK."


@pytest.mark.parametrize("odd", ["\x00", "\ud800", "\udc00\ud800", "\x1b", "\x1b0000", "😀", "\u202e", "\ufeff"])
def test_odd_characters_are_kept_and_found(tmp_path: Path, odd: str) -> None:
    """NUL, lone surrogates and escapes come back as they were sent, from every place they can get to."""
    text = f"kiwi{odd} plum {odd}"
    with open_sync(
        tmp_path / "agents.db", calls("memory_insert", label="human", new_string=text), says(text)
    ) as perdure:
        agent = perdure.create_agent("helper")
        reply = agent.send(text, idempotency_key=text)
        agent.archive(text, tags=[f"t{odd}"])
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.agent("helper")

        assert [message.text for message in agent.messages()] == [text, "", text, text]
        assert agent.send(text, idempotency_key=text) == reply
        assert agent.blocks.get("human").value == text
        assert [hit.message.text for hit in agent.search("plum", roles=["user"])] == [text]
        assert [hit.passage.text for hit in agent.search_archive("plum", tags=[f"t{odd}"])] == [text]


async def test_a_busy_conversation_waits_or_refuses(tmp_path: Path) -> None:
    """The caller chooses: wait behind the run, or be told which one it is; other conversations are free."""
    model = SlowSpeaker("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent = await perdure.create_agent()
        first = await agent.submit("a")
        waiting = await agent.submit("b")
        with pytest.raises(ConversationBusy, match=first.run.id):
            await agent.send("c", if_busy="reject")
        elsewhere = await agent.submit("d", conversation=(await agent.new_conversation()).id, if_busy="reject")
        model.go.set()
        for accepted in (first, waiting, elsewhere):
            assert [sent async for sent in agent.follow(accepted.run.id)]

        texts = [message.text for message in await agent.messages(conversation=(await agent.conversations())[0].id)]
        assert texts == ["a", "one two", "b", "one two"]


def test_a_conversation_of_another_agent_is_not_found(tmp_path: Path) -> None:
    """An id that leads elsewhere is as unknown as one that leads nowhere."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent, other = perdure.create_agent("one"), perdure.create_agent("two")
        foreign = other.conversations()[0].id
        for conversation in (foreign, ConversationId("conv-00000000-0000-4000-8000-000000000000"), ConversationId("x")):
            with pytest.raises(NotFound):
                agent.send("hello", conversation=conversation)
            with pytest.raises(NotFound):
                agent.messages(conversation=conversation)


def test_history_comes_in_pages(tmp_path: Path) -> None:
    """Pages by number, in both directions, of one conversation or of all."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        other = agent.new_conversation()
        for text in "abc":
            agent.send(text)
        agent.send("d", conversation=other.id)

        assert [message.text for message in agent.messages(limit=3)] == ["a", "OK.", "b"]
        assert [message.text for message in agent.messages(after_seq=3)] == ["c", "OK.", "d", "OK."]
        assert [message.text for message in agent.messages(newest_first=True, limit=2)] == ["OK.", "d"]
        assert [message.text for message in agent.messages(before_seq=2)] == ["a", "OK."]
        assert [message.text for message in agent.messages(conversation=other.id)] == ["d", "OK."]


PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 40


def test_pictures_are_sent_behind_the_text(tmp_path: Path) -> None:
    """Files and bytes, by each of the three ways to send; the model and the history have them."""
    file = tmp_path / "a.png"
    file.write_bytes(PNG)
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        reply = agent.send("What is this?", images=[file, b"GIF89a" + b"0" * 20])
        list(agent.stream("And this?", images=[file]))
        accepted = agent.submit("And this?", images=[PNG])
        list(agent.follow(accepted.run.id))

        kinds = [[part.media_type for part in one.parts if isinstance(part, Image)] for one in agent.messages()]
        assert kinds[::2] == [["image/png", "image/gif"], ["image/png"], ["image/png"]]
        assert reply.messages[0].parts[0] == Text("What is this?")
        step_id = reply.messages[-1].step_id
        assert step_id is not None
        assert images_of(agent.request(step_id).messages[-1].parts) == reply.messages[0].parts[1:]


@pytest.mark.parametrize(
    ("picture", "what"),
    [
        (b"hello", "an image of 5 bytes is not an image"),
        (Path("nowhere.png"), "nowhere.png can't be read"),
        ("a.png", "is not an address"),
        (5, "an image is 5"),
        ("http://127.0.0.1:1/a.png", "127.0.0.1"),
    ],
)
def test_what_is_no_picture_is_refused(tmp_path: Path, picture: Any, what: str) -> None:
    """Before anything is stored; addresses are fetched behind the web guard."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        with pytest.raises(PerdureError, match=what):
            agent.send("What is this?", images=[picture])

        assert agent.messages() == []


def test_a_message_is_changed_afterwards(tmp_path: Path) -> None:
    """Lists, searches and later requests have the new text, a picture stays; what was sent before stays as it was."""
    with open_sync(tmp_path / "agents.db", thinks("hm", says("A cat."))) as perdure:
        agent, other = perdure.create_agent("one"), perdure.create_agent("other")
        question, answer = agent.send("What is thiss?", images=[PNG]).messages
        changed = agent.update_message(question.id, "What is this?")
        agent.update_message(answer.id, "A walrus.")
        agent.update_message(answer.id, "Whiskers.", part="reasoning")
        reply = agent.send("Sure?")
        first, second = (agent.request(one.step_id) for one in (answer, reply.messages[-1]) if one.step_id)

        assert [type(part) for part in changed.parts] == [Text, Image]
        assert [one.text for one in agent.messages()][1:] == ["A walrus.", "Sure?", "OK."]
        assert agent.messages()[1].parts[0] == Reasoning("Whiskers.")
        assert [hit.message.id for hit in agent.search("walrus")] == [answer.id]
        assert ("thiss" in first.messages[-1].text, "thiss" in second.messages[0].text) == (True, False)
        with pytest.raises(NotFound):
            other.update_message(question.id, "Mine.")
        with pytest.raises(InvalidInput, match="no reasoning"):
            agent.update_message(question.id, "Hm.", part="reasoning")
