"""Messages that are sent to agents by themselves, and events from outside."""

from perdure.core.features import Feature, Noun, TableUse, TextUse

FEATURE = Feature(
    name="schedules",
    nouns={
        "schedule": Noun(
            modules=("commands",), help="Add, list, show, pause, resume, cancel or delete what wakes agents."
        )
    },
    verbs={"event": Noun(modules=("commands",), help="Tell an agent that something happened, and print what it says.")},
    routes=("routes",),
    sections={"memory": "pages:SECTION"},
    tools="tools",
    parts={"schedules": "service:AsyncSchedules"},
    agent_parts={"notify": "service:AsyncEvents.notify"},
    services=("worker:ScheduleWorker",),
    tables=(
        TableUse(name="schedule_firings", key=("schedule_seq", "seq")),
        TableUse(
            name="schedules",
            key=("seq",),
            has_callback=True,
            spread_key=("agent_id", "id"),
            queues={"schedules_late": "t.next_at <= :at"},
        ),
    ),
    text_tables=(
        TextUse(name="schedules", place="schedule", key=("seq",), texts=("name", "messages", "callback")),
        TextUse(name="schedule_firings", place="schedule", key=("schedule_seq", "seq"), texts=("reason",)),
    ),
    one_form={"schedules name": ("id", "")},
    copies="copies:SCHEDULES",
    points={"companion_lost": "units:cancel_passes", "work_waits": "units:is_due"},
)
