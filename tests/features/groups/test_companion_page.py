"""The companion of an agent on its memory page."""

from __future__ import annotations

from perdure.testing import calls, says
from tests.ui.browser import dashboard, text_of, undo

HOSTILE = "<script>alert(1)</script>"


async def test_a_companion_is_switched_on_woken_shown_and_deleted() -> None:
    """What a pass changed stands there with its reason, as text."""
    edit = calls("memory_insert", label="human", new_string=HOSTILE)
    script = [says("OK."), edit, calls("memory_finish_edits", reason=f"She said {HOSTILE}")]
    async with dashboard(*script) as (client, library):
        agent = await library.create_agent("Ada", human="likes tea")
        where = f"/agents/{agent.id}/memory"
        none = text_of((await client.get(where)).text)
        on = text_of((await client.post(f"{where}/companion/on")).text)
        nothing = text_of((await client.post(f"{where}/companion/wake")).text)
        await agent.send("hello")
        woken = text_of((await client.post(f"{where}/companion/wake")).text)
        await agent.companion.wake()  # or it has ended
        page = await client.get(where)
        shape = (await client.get(f"{where}?format=json")).json()["companion"]
        own = text_of((await client.get(f"/agents/{shape['id']}/memory")).text)
        off = text_of((await client.post(f"{where}/companion/off")).text)

        assert "Add a companion" in none
        assert "Ada-sleeptime tidies these blocks after every 5 turns" in on and "not made a pass yet" in on
        assert "Nothing new has been said" in nothing
        assert "reads what is new" in woken
        assert "Pass 1 finished" in text_of(page.text)
        assert HOSTILE not in page.text and f"+{HOSTILE}" in text_of(page.text)
        assert [(one["reason"], len(one["edits"])) for one in shape["passes"]] == [(f"She said {HOSTILE}", 1)]
        assert "Add a companion" not in own and "It tidies the memory of another agent" in own
        assert "is deleted" in off
        assert await agent.companion.info() is None
        again = await client.post(f"{where}/companion/off")
        assert again.status_code == 404 and "is deleted" not in text_of(again.text)


async def test_the_settings_of_an_agent_have_its_companion() -> None:
    """It is given, told how often to wake, and taken away; a companion itself has none."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        here = f"/agents/{agent.id}/settings"
        before = text_of((await client.get(here)).text)
        given = await client.post(f"{here}/companion/on", data={"kind": "reflection"})
        info = await agent.companion.get()
        form = {"frequency": "3", "max_steps": "", "max_tokens": "10,000"}
        changed = await client.post(f"{here}/companion", data=form)
        after = await agent.companion.get()
        await undo(client, changed)
        back = await agent.companion.get()
        wrong = await client.post(f"{here}/companion", data={**form, "frequency": "often"})
        own = text_of((await client.get(f"/agents/{info.companion.id}/settings")).text)
        await undo(client, given)

        assert "It tidies the memory" in before and info.kind == "reflection"
        assert (after.frequency, after.max_steps, after.max_tokens) == (3, None, 10_000)
        assert (back.frequency, back.max_tokens) == (info.frequency, info.max_tokens)
        assert wrong.status_code == 422
        assert "Give it one" in before and "Give it one" not in own
        assert await agent.companion.info() is None
