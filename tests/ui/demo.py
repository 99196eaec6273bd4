"""A store that shows every page well filled, for screenshots: `fill_demo` talks to an agent with a scripted model."""

from __future__ import annotations

from perdure import AsyncPerdure
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


def send_money(to: str, amount: float) -> str:
    """Send money to a person.

    Args:
        to: who gets it.
        amount: in euros.
    """
    return f"{amount} euros were sent to {to}."


async def fill_demo(library: AsyncPerdure) -> dict[str, str]:
    """Fill the store; the pages' paths by their names."""
    agent = await library.create_agent("Ada", persona=PERSONA, human=HUMAN, description="House and garden")
    await library.create_agent("Marco", description="Reads the newspapers in the morning")
    await library.create_agent("Lin", description="Plans trips and keeps the tickets")
    await agent.require_approval("send_money")
    for text, tags in NOTES:
        await agent.archive(text, tags=list(tags))
    for text in SAID:
        await agent.send(text)
    await library.folders.create("Manuals")
    step = (await agent.steps(limit=1))[0]
    home = f"/agents/{agent.id}"
    return {
        "home": "/",
        "chat": home,
        "context": f"{home}/context",
        "memory": f"{home}/memory",
        "versions": f"{home}/memory?block=human&from=0&to=2#versions",
        "timeline": f"{home}/memory?timeline=1",
        "tools": f"{home}/tools",
        "runs": "/runs",
        "run": f"/runs/{step.run_id}?step={step.id}",
        "search": "/search?q=boiler",
        "approvals": "/approvals",
        "connections": "/connections",
        "data": "/data",
        "settings": "/settings",
    }
