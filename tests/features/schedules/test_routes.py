"""Schedules and events over HTTP, in the shapes of the client's types."""

from __future__ import annotations

from typing import Any

import pytest
from letta_client.types.agents.schedule_create_response import ScheduleCreateResponse
from letta_client.types.agents.schedule_list_response import ScheduleListResponse
from letta_client.types.agents.schedule_retrieve_response import ScheduleRetrieveResponse

from perdure.core.ids import AgentId
from perdure.core.messages import Text
from perdure.engine.records.run_request import NewMessage
from perdure.features.schedules.units import NewSchedule
from tests.server.routed import Routed, new_agent, routed

HELLO = [{"role": "user", "content": "hello"}]
SOON = 4_000_000_000_000
NOBODY = "schedule-00000000-0000-4000-8000-000000000000"


async def new_schedule(server: Routed, agent: Any, schedule: Any, **fields: Any) -> Any:
    """A schedule of the agent, as the wire shows it."""
    made = await server.post(f"/v1/agents/{agent['id']}/schedule", {"messages": HELLO, "schedule": schedule, **fields})
    ScheduleCreateResponse.model_validate(made, strict=True)
    return await server.get(f"/v1/agents/{agent['id']}/schedule/{made['id']}")


async def test_a_schedule_is_made_found_listed_and_removed() -> None:
    """Once, in seconds or milliseconds; what was sent comes back as it was."""
    async with routed() as server:
        agent, other = await new_agent(server), await new_agent(server)
        path = f"/v1/agents/{agent['id']}/schedule"
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
        message = {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, picture],
            "otid": "o",
            "type": "message",
        }
        full = await new_schedule(
            server,
            agent,
            {"type": "one-time", "scheduled_at": SOON},
            messages=[message],
            max_steps=4,
            include_return_message_types=["assistant_message"],
        )
        seconds = await new_schedule(server, agent, {"scheduled_at": SOON / 1_000})
        ScheduleRetrieveResponse.model_validate(full, strict=True)

        assert full["message"] == {
            "messages": [message],
            "max_steps": 4,
            "include_return_message_types": ["assistant_message"],
        }
        assert full["schedule"] == seconds["schedule"] == {"type": "one-time", "scheduled_at": SOON}
        assert full["next_scheduled_time"] == "2096-10-02T07:06:40.000000Z"
        first = await server.get(path, limit="1")
        ScheduleListResponse.model_validate(first)
        rest = await server.get(path, after=full["id"])
        assert (first["has_next_page"], [one["id"] for one in first["scheduled_messages"]]) == (True, [full["id"]])
        assert (rest["has_next_page"], [one["id"] for one in rest["scheduled_messages"]]) == (False, [seconds["id"]])
        assert (await server.refused("GET", f"/v1/agents/{other['id']}/schedule/{full['id']}"))[0] == 404
        assert await server.delete(f"{path}/{full['id']}") == {"success": True}
        assert (await server.refused("DELETE", f"{path}/{full['id']}"))[0] == 404
        assert (await server.refused("GET", f"{path}/{NOBODY}"))[0] == 404


@pytest.mark.parametrize(("expression", "day"), [("0 9 * * MON", "T09:00:00"), ("@weekly", "T00:00:00")])
async def test_cron_and_intervals_have_fields_of_our_own(expression: str, day: str) -> None:
    """A time zone, which is UTC by default, quiet hours, limits and policies; and the next times."""
    async with routed() as server:
        agent = await new_agent(server, timezone="Asia/Tokyo")
        cron = {"type": "recurring", "cron_expression": expression}
        plain = await new_schedule(server, agent, cron)
        full = await new_schedule(
            server,
            agent,
            {"type": "interval", "every_s": 7_200},
            name="tidy",
            timezone="Europe/Rome",
            quiet_hours="22:00-07:00",
            in_quiet_hours="skip",
            missed="all",
            missed_limit=3,
            max_firings=9,
            conversation_id="default",
        )

        assert (plain["schedule"], plain["timezone"]) == (cron, "UTC")
        assert [time[10:19] for time in plain["next_times"]] == [day] * 5
        wanted: dict[str, Any] = {
            "name": "tidy",
            "timezone": "Europe/Rome",
            "quiet_hours": "22:00-07:00",
            "in_quiet_hours": "skip",
        }
        wanted |= {"missed": "all", "missed_limit": 3, "max_firings": 9, "status": "active", "made_by": "user"}
        assert {name: full[name] for name in wanted} == wanted
        path = f"/v1/agents/{agent['id']}/schedule/{full['id']}"
        assert (await server.post(f"{path}/pause", {}))["status"] == "paused"
        assert (await server.post(f"{path}/resume", {}))["status"] == "active"
        assert (await server.post(f"{path}/cancel", {}))["status"] == "cancelled"
        assert await server.get(f"{path}/firings") == []
        assert len((await server.get(f"/v1/agents/{agent['id']}/schedule"))["scheduled_messages"]) == 1


async def test_a_schedule_that_makes_no_sense_is_refused() -> None:
    """With 422 and a sentence that helps; nothing is stored."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/schedule"
        cron = {"type": "recurring", "cron_expression": "0 9 * * *"}
        for fields, words in (
            ({"schedule": {"scheduled_at": 1.0}}, "in the past"),
            ({"schedule": {"type": "recurring", "cron_expression": "0 0 30 2 *"}}, "day-of-month"),
            ({"schedule": {"type": "interval", "every_s": 1}}, "PERDURE_SCHEDULE_INTERVAL_S"),
            ({"schedule": cron, "timezone": "Europe/Berln"}, "Europe/Berlin"),
            ({"schedule": cron, "messages": []}, "empty"),
            ({"schedule": cron, "messages": [{"role": "user", "content": "x", "sender_id": "perdure"}]}, "sender_id"),
            ({"schedule": cron, "callback_url": "file:///etc"}, "callback_url"),
            ({"schedule": {}}, "scheduled_at"),
            ({"schedule": {"type": "weekly"}}, "schedule: type should be 'one-time', 'recurring' or 'interval'"),
            ({"schedule": 5}, "schedule: "),
        ):
            status, detail = await server.refused("POST", path, {"messages": HELLO, **fields})
            assert (status, words in detail) == (422, True), detail
        assert (await server.get(path))["scheduled_messages"] == []
        missing = agent["id"][:-3] + "000"
        assert (await server.refused("POST", f"/v1/agents/{missing}/schedule", {"messages": HELLO, "schedule": cron}))[
            0
        ] == 404


async def test_a_wrong_schedule_is_told_about_the_fields_of_its_type_alone() -> None:
    """Without a type, the field says which it is."""
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/schedule"
        for schedule, wanted in (
            ({"type": "recurring"}, "schedule.cron_expression: Field required"),
            ({"type": "interval", "every_s": "x"}, "schedule.every_s"),
            ({"cron_expression": "0 9 * * *"}, "schedule.type: Field required"),
            ({"type": "one-time", "every_s": 60}, "schedule.scheduled_at: Field required"),
        ):
            status, detail = await server.refused("POST", path, {"messages": HELLO, "schedule": schedule})
            assert (status, wanted in detail) == (422, True), detail
            assert "TimeIn" not in detail and sum(name in detail for name in ("cron_expr", "scheduled_at")) <= 1, detail


async def test_an_event_begins_a_run_once() -> None:
    """Under a key; one that wakes nobody ends without an answer."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/events"
        headers = {"Idempotency-Key": "k"}
        answers = [
            (await server.http.post(path, json={"kind": "login", "data": {"from": "a phone"}}, headers=headers)).json()
            for _ in range(2)
        ]
        noted = await server.post(path, {"kind": "like", "wake": False})

        assert answers[0]["id"] == answers[1]["id"] != noted["id"]
        assert answers[0]["agent_id"] == agent["id"]
        changed = await server.http.post(path, json={"kind": "like"}, headers=headers)
        assert changed.status_code == 409
        assert (await server.refused("POST", path, {"kind": "a b"}))[0] == 422


async def test_a_schedule_goes_on_until_the_end_of_a_day() -> None:
    """Where its end is told as a day, by the library as over HTTP; a time is what it says."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/schedule"
        cron = {"type": "recurring", "cron_expression": "0 9 * * *"}
        for end, seen in (
            ("2999-11-30", None),
            ("2030-11-30", "2030-11-30T22:59:59"),
            ("2030-11-30T08:00:00", "07:00"),
        ):
            body = {"messages": HELLO, "schedule": cron, "timezone": "Europe/Rome", "ends_at": end}
            if seen is None:
                assert (await server.refused("POST", path, body))[0] == 422
                continue
            made = await server.post(path, body)
            shown = await server.get(f"{path}/{made['id']}")
            assert seen in shown["ends_at"]
        made = await server.library.agent_of(AgentId(agent["id"])).schedules.add(
            [NewMessage((Text("hi"),))], NewSchedule(messages=(), cron="0 9 * * *", ends_at="2030-11-30")
        )
        assert made.timing.ends_at is not None and made.timing.ends_at.isoformat().startswith("2030-11-30T23:59:59")
