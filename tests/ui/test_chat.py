"""The chat in a browser: nothing that was said or typed is lost, and nothing in an answer runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from perdure.core.errors import ModelRequestRefused
from perdure.core.models import Model, ModelDelta, ModelReply, ModelRequest
from perdure.library.agent import AsyncAgent
from perdure.server.config import ServerConfig
from perdure.testing import ScriptedModel, calls, says
from perdure.testing.scripted_model import split_words
from tests.support.servers import Tools, listening, open_library
from tests.ui.chromium import Seen, needs_chromium, open_page
from tests.ui.hostile import pay
from tests.ui.payloads import PAYLOADS
from tests.ui.test_browser import press_until, until

pytestmark = needs_chromium
MARKDOWN = "# Pears\n\nThe *tree* wants\n\n```python\nprune()\n```\n\nand [care](https://example.org)."


@contextlib.asynccontextmanager
async def open_chat(
    chromium: Browser, path: Path, model: Model, tools: Tools = (), **fields: Any
) -> AsyncIterator[tuple[Page, Seen, AsyncAgent]]:
    """The page of the chat of an agent called Ada, what it sees, and the agent."""
    async with open_library(path, model, tools) as library, listening(library, ServerConfig(port=0)) as address:
        agent = await library.create_agent("Ada", human="Likes tea.", **fields)
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}")
            yield page, seen, agent


class HaltingModel:
    """A model that says the beginning of an answer, and its end once `go` is set."""

    def __init__(self, begin: str, end: str) -> None:
        self.begin, self.end, self.go = begin, end, asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        for piece in split_words(self.begin):
            yield ModelDelta("text", piece)
            await asyncio.sleep(0.06)
        await self.go.wait()
        yield ModelDelta("text", self.end)
        yield says(self.begin + self.end)


class HaltingSender(HaltingModel):
    """As `HaltingModel`, but what it says is a message that it sends by `send_message`."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        yield ModelDelta("tool_name", "send_message", call_id="call_1")
        yield ModelDelta("tool_arguments", '{"thinking": "I greet.", "message": "')
        async for piece in super().respond(request):
            if isinstance(piece, ModelDelta):
                yield ModelDelta("tool_arguments", piece.text)
            else:
                text = self.begin + self.end
                yield calls("send_message", thinking="I greet.", message=text, request_heartbeat=False)


async def send(page: Page, text: str) -> None:
    await page.fill("#text", text)
    await page.press("#text", "Enter")


async def send_two(page: Page) -> None:
    """Send "count", and "never mind", which waits in sight behind its answer."""
    for text in ("count", "never mind"):
        await send(page, text)
    await page.wait_for_selector("#queued .item")


class ByteByByte(ScriptedModel):
    """A scripted model that streams one character at a time."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        async for piece in super().respond(request):
            if not isinstance(piece, ModelDelta):
                yield piece
                continue
            for char in piece.text:
                yield ModelDelta(piece.kind, char)
                await asyncio.sleep(0.001)


async def test_an_answer_streams_as_markdown(chromium: Browser, tmp_path: Path) -> None:
    """While it is written and after it, under the agent's name; its code is copied by a button."""
    model = HaltingModel(MARKDOWN, " End.")
    async with open_chat(chromium, tmp_path, model) as (page, seen, _):
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await send(page, "pears?")
        await page.wait_for_selector("#live .markdown h3:has-text('Pears')")
        await page.wait_for_selector("#live .code-head:has-text('python')")
        assert await page.inner_text("#live .who") == "Ada"
        model.go.set()
        await page.wait_for_selector("#messages .assistant:has-text('End.') a.leaves[target=_blank]")
        await page.wait_for_selector("#working", state="hidden")
        await until(page, "!loading")

        await page.click("[data-copy-code]")
        await page.wait_for_selector("[data-copy-code]:has-text('Copied')")
        assert await page.evaluate("navigator.clipboard.readText()") == "prune()\n"
        await press_until(page, ".item.assistant .actions a[href*='step=']")
        await expect(page.locator(".item.assistant .actions")).to_have_css("opacity", "1")
    assert seen.problems == []


async def test_no_payload_runs_while_it_streams(chromium: Browser, tmp_path: Path) -> None:
    """Forty payloads, one character after the other, as they are and in Markdown."""
    texts = ["\n\n".join(PAYLOADS), "\n\n".join(f"[{one}]({one}) ![{one}]({one})" for one in PAYLOADS[:20])]
    model = ByteByByte(*map(says, texts))
    async with open_chat(chromium, tmp_path, model) as (page, seen, _):
        for number in range(len(texts)):
            await send(page, "go on")
            await page.wait_for_selector("#live .markdown")
            await expect(page.locator("#messages .assistant")).to_have_count(number + 1, timeout=60_000)
            assert await page.evaluate("window.ran === undefined")
    assert seen.problems == []


async def test_a_message_that_waits_is_shown_and_taken_back(chromium: Browser, tmp_path: Path) -> None:
    """Two that are sent in the middle of an answer wait in sight; the text of one comes back into the composer."""
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, seen, agent):
        for text in ("count", "never mind", "and then?"):
            await send(page, text)
        await expect(page.locator("#queued .item")).to_have_count(2)
        await page.click("#queued .item:has-text('never mind') button")
        await expect(page.locator("#text")).to_have_value("never mind")
        await expect(page.locator("#queued .item")).to_have_count(1)
        model.go.set()
        await expect(page.locator("#messages .assistant")).to_have_count(2)
        assert [one.text for one in await agent.messages()] == ["count", "one more time", "and then?", "one more time"]
    assert seen.problems == []


async def test_a_stopped_answer_stays_and_is_tried_again(chromium: Browser, tmp_path: Path) -> None:
    """The button that stops stands in the composer, and stops one run: the next message is answered."""
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, seen, _):
        await send(page, "count")
        await page.wait_for_selector("#live .assistant:has-text('one')")
        await send(page, "and again")
        await page.wait_for_selector("#queued .item")
        await page.click(".composer #stop")
        await page.wait_for_selector(
            "#messages .assistant:has-text('one') + .stopped:has-text('You stopped this answer')"
        )
        await page.wait_for_selector("#messages .user:has-text('and again')")
        await page.wait_for_selector("#live .assistant:has-text('one')")
        await page.click("#stop")
        await page.wait_for_selector(".stopped:last-child button:has-text('Try again')")
        await expect(page.locator("[data-post=again]")).to_have_count(1)
        model.go.set()
        await page.click("[data-post=again]")
        await page.wait_for_selector("#messages .assistant:has-text('one more time')")
        assert await page.locator("#messages .user").count() == 2
    assert seen.problems == []


async def test_a_sent_message_streams_and_is_stopped_like_an_answer(chromium: Browser, tmp_path: Path) -> None:
    """Of an agent that speaks by `send_message`: also after a reload, and without the empty result of the call."""
    model = HaltingSender("**one** more ", "time")
    async with open_chat(chromium, tmp_path, model, agent_type="memgpt_v2_agent") as (page, seen, _):
        await send(page, "count")
        await page.wait_for_selector("#live .assistant strong:text-is('one')")
        await page.click("#stop")
        for _ in range(2):
            await page.wait_for_selector("#messages .assistant:has(strong:text-is('one')) + .stopped:last-child")
            assert await page.locator("#messages .item").count() == 3
            await page.reload()
        model.go.set()
        await page.click("[data-post=again]")
        await page.wait_for_selector("#messages .assistant:has-text('one more time')")
    assert seen.problems == []


COUNT_MISSES = """text => { window.misses = 0; new MutationObserver(() => {
    if (!document.querySelector("#page").innerText.includes(text)) window.misses += 1;
}).observe(document.body, { childList: true, subtree: true }); }"""


async def test_a_sent_message_stays_when_an_older_page_comes_late(chromium: Browser, tmp_path: Path) -> None:
    """The page was read before the message was stored, and comes after the answer to the message."""
    read, stored = asyncio.Event(), asyncio.Event()

    async def come_late(route: Route) -> None:
        answer = await route.fetch()
        if read.is_set():
            await asyncio.sleep(1)
        read.set()
        await stored.wait()
        await route.fulfill(response=answer)

    async def hold(route: Route) -> None:
        await read.wait()
        await route.fulfill(response=await route.fetch())
        await page.wait_for_timeout(100)
        stored.set()

    async with open_chat(chromium, tmp_path, ScriptedModel(says("Good morning."))) as (page, seen, _):
        await page.route("**/messages?*", hold)
        await page.route("**/agents/*", come_late)
        await send(page, "hello")
        await page.evaluate("void refresh()")
        await page.evaluate(COUNT_MISSES, "hello")
        await page.wait_for_selector("#messages .assistant:has-text('Good morning.')")
        await page.wait_for_selector("#working", state="hidden")
        assert await page.evaluate("window.misses") == 0
        await page.unroute_all(behavior="wait")
    assert seen.problems == []


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_the_end_of_an_answer_stays_when_an_older_page_comes_late(
    chromium: Browser, tmp_path: Path, is_stopped: bool
) -> None:
    """The page, or the answer to Stop, was read before the end that the stream has shown."""
    read, ended = asyncio.Event(), asyncio.Event()

    async def come_late(route: Route) -> None:
        if route.request.method == "POST":
            answer = await route.fetch(url=page.url, method="GET")
            await route.fetch()
        elif read.is_set():
            await asyncio.sleep(1)
            answer = await route.fetch()
        else:
            answer = await route.fetch()
        read.set()
        await ended.wait()
        await route.fulfill(response=answer)

    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, seen, _):
        await send(page, "count")
        await page.wait_for_selector("#live .assistant:has-text('one more')")
        await page.route("**/stop?*" if is_stopped else "**/agents/*", come_late)
        await (page.click("#stop") if is_stopped else page.evaluate("void refresh()"))
        await read.wait()
        await page.route("**/agents/*", come_late)
        model.go.set()
        end = "You stopped this answer" if is_stopped else "one more time"
        await page.wait_for_selector(f"#messages .item:has-text('{end}')")
        await page.evaluate(COUNT_MISSES, end)
        ended.set()
        await page.wait_for_selector("#working", state="hidden")
        assert await page.evaluate("window.misses") == 0
        await page.unroute_all(behavior="wait")
    assert seen.problems == []


async def test_a_failed_answer_is_tried_again(chromium: Browser, tmp_path: Path) -> None:
    model = ScriptedModel(ModelRequestRefused("the provider is down"), says("Good morning."))
    async with open_chat(chromium, tmp_path, model) as (page, seen, _):
        await send(page, "hello")
        await page.click(".failure:has-text('the provider is down') button:has-text('Try again')")
        await page.wait_for_selector("#messages .assistant:has-text('Good morning.')")
        assert await page.locator("#messages .user").count() == 1
        assert await page.locator("[data-post=again]").count() == 0
    assert seen.problems == []


async def test_what_can_not_be_sent_is_sent_when_the_connection_is_back(chromium: Browser, tmp_path: Path) -> None:
    """It waits in the page, also over a reload; the page says that the connection is away."""
    async with open_chat(chromium, tmp_path, ScriptedModel(says("Good morning."))) as (page, *_):
        await page.context.set_offline(True)
        await send(page, "hello")
        await page.wait_for_selector("#away:has-text('No connection to the server')")
        await page.wait_for_selector("#outbox .item:has-text('Not sent yet')")
        await page.context.set_offline(False)
        await page.wait_for_selector("#messages .assistant:has-text('Good morning.')")
        await page.wait_for_selector("#away", state="hidden")
        assert await page.locator(".item.user").count() == 1

        await page.route("**/messages?*", lambda route: route.abort())
        await send(page, "are you there?")
        await page.wait_for_selector("#outbox .item")
        await page.unroute("**/messages?*")
        await page.reload()
        await page.wait_for_selector("#messages .assistant:has-text('OK.')")
        assert await page.locator(".item.user").count() == 2


async def test_a_form_that_could_not_be_saved_says_so(chromium: Browser, tmp_path: Path) -> None:
    async with open_chat(chromium, tmp_path, ScriptedModel()) as (page, _, agent):
        await page.click(".tabs a[href$='/memory']")
        await page.fill("#block-human textarea", "Likes coffee.")
        await page.context.set_offline(True)
        await page.click("#block-human button:has-text('Save')")
        await page.wait_for_selector("#away:has-text('Nothing was saved')")
        await page.context.set_offline(False)
        await page.wait_for_selector("#away", state="hidden")
        assert await page.input_value("#block-human textarea") == "Likes coffee."
        await page.click("#block-human button:has-text('Save')")
        await page.wait_for_selector("#notice")
        assert (await agent.blocks.get("human")).value == "Likes coffee."


async def test_a_refused_message_comes_back_into_the_composer(chromium: Browser, tmp_path: Path) -> None:
    """With the reason, before what was typed since."""
    async with open_chat(chromium, tmp_path, ScriptedModel(calls("pay", text="Ada")), [pay]) as (page, _, agent):
        await agent.require_approval("pay")
        await agent.send("Pay Ada.")
        await send(page, "And Bob.")
        await page.wait_for_selector("#main > .notice.error")
        await expect(page.locator("#text")).to_have_value("And Bob.")
        await expect(page.locator("#outbox .item")).to_have_count(0)


async def test_an_answer_that_is_no_page_leaves_the_page(chromium: Browser, tmp_path: Path) -> None:
    """Such as that the session has expired; a store that takes no writes is no server that is away."""
    async with open_chat(chromium, tmp_path, ScriptedModel()) as (page, *_):
        await page.fill("#text", "a long draft")
        refused = {"status": 401, "content_type": "application/json", "body": '{"detail": "sign in first"}'}
        await page.route("**/agents/*", lambda route: route.fulfill(**refused))
        await page.evaluate("refresh()")
        await page.wait_for_selector("#main > .notice.error:has-text('not signed in any more')")
        await expect(page.locator("#text")).to_have_value("a long draft")
        await page.unroute("**/agents/*")

        body = '<main id="main"><div id="notice" class="notice error">The store can only be read.</div></main>'
        await page.route("**/messages?*", lambda route: route.fulfill(status=503, content_type="text/html", body=body))
        await page.press("#text", "Enter")
        await page.wait_for_selector("#notice:has-text('can only be read')")
        await expect(page.locator("#away")).to_be_hidden()
        await expect(page.locator("#text")).to_have_value("a long draft")


async def test_a_text_that_is_taken_back_survives_a_lost_answer(chromium: Browser, tmp_path: Path) -> None:
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, *_):
        await send_two(page)

        async def lose(route: Route) -> None:
            await route.fetch()
            await route.abort()

        await page.route("**/take-back?*", lose)
        await page.click("#queued button")
        await expect(page.locator("#text")).to_have_value("never mind")
        await expect(page.locator("#queued .item")).to_have_count(0)
        model.go.set()
        await page.wait_for_selector("#messages .assistant")
        await expect(page.locator("#text")).to_have_value("never mind")


async def test_a_message_is_taken_back_once_however_often_it_is_asked_for(chromium: Browser, tmp_path: Path) -> None:
    """Also where the connection is away: it is taken back when that is there again."""
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, *_):
        await send_two(page)
        await page.context.set_offline(True)
        for _ in range(3):
            await page.evaluate("document.querySelector('#queued button').click()")
            await page.wait_for_timeout(100)
        await expect(page.locator("#queued button")).to_be_disabled()
        await page.context.set_offline(False)
        await expect(page.locator("#queued .item")).to_have_count(0)
        await expect(page.locator("#text")).to_have_value("never mind")


async def test_a_message_that_two_tabs_take_back_comes_into_one(chromium: Browser, tmp_path: Path) -> None:
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, *_):
        await send_two(page)
        other = await page.context.new_page()
        await other.goto(page.url)
        await page.context.set_offline(True)
        for tab in (page, other):
            await tab.evaluate("loseConnection()")
            await tab.click("#queued button")
        await page.context.set_offline(False)
        for tab in (page, other):
            await expect(tab.locator("#away")).to_be_hidden()
            await expect(tab.locator("#queued .item")).to_have_count(0)
        texts = [await tab.locator("#text").input_value() for tab in (page, other)]
        assert sorted(texts) == ["", "never mind"]


async def test_a_refusal_after_a_lost_answer_loses_no_text(chromium: Browser, tmp_path: Path) -> None:
    """The second request finds the message taken back already, by the first one."""
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, *_):
        await send_two(page)
        refused = asyncio.Event()

        async def lose(route: Route) -> None:
            await route.fetch()
            await route.abort()

        async def hold(route: Route) -> None:
            await refused.wait()
            await route.continue_()

        await page.route(page.url, hold)
        await page.route("**/take-back?*", lose, times=1)
        async with page.expect_response("**/take-back?*") as again:
            await page.click("#queued button")
        assert (await again.value).status == 409
        refused.set()
        await expect(page.locator("#queued .item")).to_have_count(0)
        await expect(page.locator("#text")).to_have_value("never mind")


async def test_what_is_edited_stays_when_something_is_sent(chromium: Browser, tmp_path: Path) -> None:
    """The number of calls that wait for an answer follows at once."""
    script = (says("One."), says("Fine."), calls("pay", text="Ada"))
    async with open_chat(chromium, tmp_path, ScriptedModel(*script), [pay]) as (page, _, agent):
        await agent.require_approval("pay")
        await agent.send("hello")
        await page.reload()
        await page.hover(".item.user")
        await page.click(".item.user a[href*='edit=']")
        await page.fill("#edit textarea", "hello, you")
        await send(page, "How are you?")
        await page.wait_for_selector("#messages .assistant:has-text('Fine.')")
        await expect(page.locator("#edit textarea")).to_have_value("hello, you")
        await page.click("#edit a:has-text('Cancel')")
        await page.wait_for_url("**?conversation=*")
        await send(page, "Pay Ada.")
        await page.wait_for_selector(".pending")
        await expect(page.locator("#inbox")).to_have_text("1 waiting")
        await page.fill(".pending input[name=reason]", "for the pears")
        run = (await agent.runs(limit=1))[0].id
        assert await page.evaluate(f"load('conversations/rename', {{ name: '{run}' }}).then(({{ ok }}) => ok)")
        await expect(page.locator(".pending input[name=reason]")).to_have_value("for the pears")


async def test_enter_is_a_new_line_where_fingers_type(chromium: Browser, tmp_path: Path) -> None:
    """And no keyboard opens over the messages."""
    async with (
        open_chat(chromium, tmp_path, ScriptedModel()) as (desk, *_),
        await chromium.new_context(has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800}) as context,
    ):
        page = await context.new_page()
        await page.goto(desk.url)
        await page.wait_for_selector("#text:not(:focus)")
        await page.type("#text", "one")
        await page.press("#text", "Enter")
        await page.type("#text", "two")
        await expect(page.locator("#text")).to_have_value("one\ntwo")
        await page.tap(".composer .primary")
        await page.wait_for_selector("#messages .assistant")


async def test_another_model_answers_again_in_a_new_conversation(chromium: Browser, tmp_path: Path) -> None:
    """In one, also where its button is pressed twice."""
    async with open_chat(chromium, tmp_path, ScriptedModel(says("One."), says("Another."))) as (page, seen, agent):
        await agent.send("hello")
        await page.reload()
        await page.hover(".item.assistant")
        await page.click(".item.assistant a:has-text('Answer again')")
        await page.locator("#again button.primary").evaluate("one => { one.click(); one.click(); }")
        await page.wait_for_selector("#messages .assistant:has-text('Another.')")
        assert await page.locator("#messages .assistant").count() == 1
        await expect(page.locator(".conversations nav li")).to_have_count(2)
    assert seen.problems == []


@pytest.mark.uses("snapshots")
async def test_a_message_leads_to_going_back_to_its_step(chromium: Browser, tmp_path: Path) -> None:
    """On the page of its run, where the button of that step has the focus."""
    async with open_chat(chromium, tmp_path, ScriptedModel(says("One."), says("Two."))) as (page, seen, agent):
        await agent.send("first")
        await agent.send("second")
        await page.reload()
        await page.hover(".item.assistant >> nth=0")
        await page.click(".item.assistant >> nth=0 >> a:has-text('Go back to here')")
        await expect(page.locator("#snapshots button:has-text('Go back to here')")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.wait_for_selector(":text('2 messages left the view')")
        assert [one.text for one in await agent.messages()] == ["first", "One."]
        await page.click("button:has-text('Undo')")
        await page.wait_for_selector(":text('0 messages left the view')")
        assert len(await agent.messages()) == 4
    assert seen.problems == []


async def test_the_back_button_leads_to_the_chat_as_it_is_now(chromium: Browser, tmp_path: Path) -> None:
    """Not to the page that was left: the answer that streams goes on, and another message waits for it."""
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, seen, _):
        await send(page, "count")
        await page.wait_for_selector("#live .assistant")
        await page.click("#new-conversation")
        await page.wait_for_url("**conversation=conv-*")
        await page.go_back()
        await page.wait_for_selector("#live .assistant:has-text('one')")
        await send(page, "and again")
        await page.wait_for_selector("#queued .item")
        await page.go_forward()
        await page.wait_for_selector("#messages .empty")
        await page.go_back()
        model.go.set()
        await expect(page.locator("#messages .assistant")).to_have_count(2)
    assert seen.problems == []
