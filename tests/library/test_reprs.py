"""What Python's prompt shows of an object: one short line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing import says
from tests.support.library import MODEL, open_sync

pytestmark = pytest.mark.uses("origins")

TEXT = "Ada lives in Turin and likes walking.\n" * 30
PARTS = "blocks archives files tools rules"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Name -> `repr` of each object, with texts of 1,140 characters; `ids` has what the objects' ids are."""
    folder: Path = tmp_path_factory.mktemp("reprs")
    (folder / "notes.txt").write_text(TEXT)
    with open_sync(folder / "agents.db", says(TEXT)) as perdure:
        agent = perdure.create_agent("helper", human=TEXT)
        reply = agent.send(TEXT)
        passage = agent.archive(TEXT, tags=["home"])
        docs = perdure.folders.create("docs")
        docs.upload(folder / "notes.txt")
        docs.wait()
        agent.files.attach("docs")
        named = {
            "store": perdure,
            "agent": agent,
            "agent's values": agent.info,
            "reply": reply,
            "block": agent.blocks.get("human"),
            "empty block": agent.blocks.get("persona"),
            "message": reply.messages[0],
            "message hits": agent.search("Turin"),
            "no hits": agent.search("Nothing", roles=["tool"]),
            "passage": passage,
            "passage hit": agent.search_archive("Turin")[0],
            "archive": agent.archives.list()[0],
            "run": agent.run(reply.run_id),
            "folder": perdure.folders.get("docs"),
            "file": docs.files()[0],
            "open file": agent.files.list()[0],
            "conversation": agent.conversations()[0],
            "recalled": agent.recall("Turin"),
            "context": agent.context(),
            "step": agent.steps()[0],
            "entry": agent.transcript()[0],
            "tool": agent.tools.list()[0],
            "memory's origin": agent.why(passage.id),
            "answer's origin": agent.why(reply.run_id),
            "mentions": agent.find_mentions("Turin"),
            **{part: getattr(agent, part) for part in PARTS.split()},
        }
        texts = {name: repr(each).replace(str(folder), "…") for name, each in named.items()}
        ids = {each.id: f"<{name}>" for name, each in named.items() if hasattr(each, "id")} | {reply.run_id: "<run>"}
        for id_, name in ids.items():
            texts = {key: text.replace(id_, name) for key, text in texts.items()}
        yield texts


@pytest.mark.uses("files")
def test_a_repr_is_one_short_line(shown: dict[str, str]) -> None:
    """Whole texts don't fit in; nothing shows an address in memory."""
    assert {name: text for name, text in shown.items() if "\n" in text or len(text) > 300 or " at 0x" in text} == {}


@pytest.mark.uses("files")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("store", "Perdure(path=PosixPath('…/agents.db'))"),
        ("agent", f"Agent(id='<agent's values>', name='helper', model='{MODEL}')"),
        ("blocks", "AgentBlocks(agent_id='<agent's values>')"),
        ("empty block", "Block(id='<empty block>', label='persona', version=0)"),
        ("run", "Run(id='<run>', status='completed', stop_reason='end_turn', step_count=1)"),
        ("folder", "Folder(id='<folder>', name='docs', file_count=1)"),
        ("no hits", "Hits(0)"),
    ],
)
def test_a_repr_says_what_it_is(shown: dict[str, str], name: str, text: str) -> None:
    """The class, the id and the name; what is empty is left out."""
    assert shown[name] == text


@pytest.mark.uses("files")
def test_a_long_text_is_cut_and_its_length_follows(shown: dict[str, str]) -> None:
    """The beginning is enough to recognise it."""
    beginning = "text='Ada lives in Turin and likes walking.\\nAda lives in Turin and'… (1,140 characters)"

    assert shown["passage"] == f"Passage(id='<memory's origin>', {beginning}, tags=<1>)"
    assert beginning in shown["message hits"] and shown["message hits"].startswith("Hits(1, best MessageHit(score=")
    assert f"Reply({beginning}, run_id='<run>', stop_reason='end_turn', messages=<2>)" == shown["reply"]
