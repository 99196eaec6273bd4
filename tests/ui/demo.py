"""A store that shows every page well filled, for screenshots: `fill_demo` talks to an agent with a scripted model."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Unpack

from perdure import AsyncAgent, AsyncPerdure
from perdure.features.facts.service import NewFactFields
from perdure.testing import calls, says

HUMAN = (
    "Maria, 41, keeps a small garden in Turin with her son Luca.\nLikes tea with lemon, no sugar.\nWorks from home on"
    " Tuesdays and Thursdays."
)
PERSONA = "A calm helper for house and garden. Short answers, and never a guess about what Maria has said."

SCRIPT = (
    says("Good morning, Maria. The pear tree wants pruning before the buds open: two weeks are left."),
    calls(
        "memory_replace", label="human", old_string="tea with lemon", new_string="coffee in the morning, tea at four"
    ),
    says("Noted: coffee in the morning, tea at four."),
    calls("archival_memory_insert", content="The plumber is Signor Bruni, 011 555 0134. He mended the boiler in May."),
    says("I have put Signor Bruni's number in the archive."),
    calls("memory_insert", label="human", new_string="Luca starts school in September."),
    says("How nice. I will remember that Luca starts school in September."),
    says("On Tuesday and Thursday you work from home; Wednesday is free for the pear tree."),
    calls("send_money", to="Signor Bruni", amount=120),
)
SAID = (
    "Good morning! What is to do in the garden?",
    "By the way, I drink coffee in the morning now, and tea at four.",
    "Signor Bruni mended the boiler, his number is 011 555 0134.",
    "Luca starts school in September!",
    "When do I have time for the pear tree this week?",
    "Please pay Signor Bruni his 120 euros.",
)
NOTES = (
    ("The pear tree by the gate is a Williams, planted in 2014.", ("garden", "trees")),
    ("Roses were cut back on 12 February; the yellow one had black spot.", ("garden",)),
    ("The boiler is a Vaillant of 2019; its pressure should be 1.5 bar.", ("house",)),
    ("Luca is allergic to hazelnuts.", ("family", "health")),
    ("The water meter is behind the second cellar door.", ("house",)),
)
FACTS = (
    # sentence, subject, relation, object, since, until
    ("Maria lives in Turin.", "Maria", "LIVES_IN", "Turin", date(2021, 9, 1), None),
    ("Maria lived in Genoa.", "Maria", "LIVES_IN", "Genoa", date(2014, 3, 1), date(2021, 9, 1)),
    ("Maria has a son, Luca.", "Maria", "HAS_CHILD", "Luca", date(2019, 5, 14), None),
    ("Luca is allergic to hazelnuts.", "Luca", "ALLERGIC_TO", "hazelnuts", date(2022, 4, 2), None),
    ("Maria works as a translator.", "Maria", "WORKS_AS", "translator", date(2016, 1, 1), None),
    ("Maria works for Edizioni Alba.", "Maria", "WORKS_FOR", "Edizioni Alba", date(2023, 2, 1), None),
    ("Maria likes tea with lemon.", "Maria", "LIKES", "tea with lemon", date(2024, 1, 1), date(2026, 3, 1)),
    ("Maria likes her pear tree.", "Maria", "LIKES", "the pear tree", date(2014, 11, 1), None),
    ("Signor Bruni mended Maria's boiler.", "Signor Bruni", "MENDED", "the boiler", date(2026, 5, 6), None),
)


def send_money(to: str, amount: float) -> str:
    """Send money to a person.

    Args:
        to: who gets it.
        amount: in euros.
    """
    return f"{amount} euros were sent to {to}."


def _at(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), UTC)


async def add_facts(library: AsyncPerdure, agent: AsyncAgent) -> None:
    """Facts of a few years, one of them from the web, two that wait for a person, one that faded, and a rule."""
    facts = agent.facts

    async def add(text: str, subject: str, relation: str, object_: str, **fields: Unpack[NewFactFields]) -> None:
        await facts.add_fact(
            text, subject=subject, relation=relation, object_=object_, origin={"type": "extraction"}, **fields
        )

    await add("Maria once had a red bicycle.", "Maria", "HAD", "a red bicycle", state="archived")
    for text, subject, relation, object_, since, until in FACTS:
        await add(text, subject, relation, object_, valid_at=_at(since), invalid_at=_at(until))
    await add("Turin plants 500 lime trees.", "Turin", "PLANTS", "lime trees", trust="web")
    await add("Maria wants to learn Greek.", "Maria", "WANTS", "Greek", state="proposed")
    await add("Luca starts school in September.", "Luca", "STARTS", "school", state="proposed")
    await facts.add_fact("The spare key is with Signora Conti.")
    await facts.add_rule("salary")


async def fill_demo(library: AsyncPerdure) -> dict[str, str]:
    """Fill the store; the pages' paths by their names."""
    agent = await library.create_agent("Ada", persona=PERSONA, human=HUMAN, description="House and garden")
    await library.create_agent("Marco", description="Reads the newspapers in the morning")
    await library.create_agent("Lin", description="Plans trips and keeps the tickets")
    await agent.require_approval("send_money")
    for text, tags in NOTES:
        passage = await agent.archive(text, tags=list(tags))
    for text in SAID:
        await agent.send(text)
    await add_facts(library, agent)
    manuals = await library.folders.create("Manuals")
    await manuals.upload(b"# Boiler\n\nBleed it in October. The pressure should be 1.5 bar.\n", name="boiler.md")
    await agent.files.attach(manuals.id)
    await agent.schedules.create("Look at the weather.", cron="0 8 * * *", name="Weather")
    step = (await agent.steps(limit=2))[1]  # its newest one is a call that waits
    (fact,) = await agent.facts.list(limit=1)
    home = f"/agents/{agent.id}"
    return {
        "home": "/",
        "chat": home,
        "context": f"{home}/context",
        "memory": f"{home}/memory",
        "versions": f"{home}/memory?block=human&from=0&to=2#versions",
        "timeline": f"{home}/memory?timeline=1",
        "facts": f"{home}/facts",
        "facts-search": f"{home}/facts?q=where+does+Maria+live",
        "facts-proposed": f"{home}/facts?state=proposed",
        "facts-none": f"{home}/facts?entity=Nobody",
        "profile": f"{home}/facts/profile?user=Maria",
        "fact-timeline": f"{home}/facts/timeline",
        "entities": f"{home}/facts/entities",
        "fact-why": f"/why?of={fact.fact.id}",
        "forget": f"{home}/forget?of={passage.id}",
        "why": f"/why?of={step.id}",
        "tools": f"{home}/tools",
        "files": f"{home}/files?q=pressure",
        "agent-settings": f"{home}/settings",
        "groups": "/groups",
        "runs": "/runs",
        "run": f"/runs/{step.run_id}?step={step.id}",
        "search": "/search?q=boiler",
        "approvals": "/approvals",
        "connections": "/connections",
        "data": "/data",
        "settings": "/settings",
    }
