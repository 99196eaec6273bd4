"""Where memories and answers come from, and taking them back: why, sources, revert, forget, undo, erase."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="origins",
    nouns={
        "source": Noun(modules=("commands",), help="List, show or revert what memory came from."),
        "memory": Noun(modules=("commands",)),
    },
    verbs={
        "why": Noun(modules=("commands",), help="Show where a memory comes from, or what was behind an answer."),
        "forget": Noun(modules=("commands",), help="Find a text in memory and history, and remove it."),
        "undo": Noun(modules=("commands",), help="Undo what was forgotten or corrected in an agent."),
    },
    slashes={
        "/why [ID]": "commands:why_in_chat",
        "/forget TEXT": "commands:forget_in_chat",
        "/undo [NUMBER]": "commands:undo_in_chat",
    },
    routes=("routes",),
    pages=("pages", "answer_pages"),
    sections={"chat": "answer_pages:RECALLED", "memory": "timeline:SECTION", "run": "answer_pages:STEP"},
    agent_parts={
        "find_mentions": "corrections:AsyncCorrections.find_mentions",
        "forget": "corrections:AsyncCorrections.forget",
        "corrections": "corrections:AsyncCorrections.corrections",
        "undo": "corrections:AsyncCorrections.undo",
        "why": "why:AsyncWhy.why",
        "find_answer": "why:AsyncWhy.find_answer",
        "sources": "sources:AsyncSources",
    },
    services=("erase:ErasureWorker",),
    points={"has_erased": "erase:has_erased"},
)
