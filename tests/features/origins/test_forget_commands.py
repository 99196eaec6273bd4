"""`perdure forget` and `perdure undo`: what stands where is shown first, and nothing is done unasked."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.library import open_sync
from tests.support.programs import run_inside


def test_a_text_is_forgotten_undone_and_erased(tmp_path: Path) -> None:
    """Each place is named with an excerpt; without a terminal --yes is needed; the hint leads back."""
    path = tmp_path / "perdure.db"
    with open_sync(path) as store:
        store.create_agent("ann", human="tea\nthe key is under the pot").archive("Again: the key is under the pot.")

    unasked = run_inside(tmp_path, "forget", "key is under", "ann")
    assert (unasked.returncode, "--yes" in unasked.stderr) == (1, True)
    assert [line.strip() for line in unasked.stdout.splitlines()[:2]] == ["1  memory blocks", "1  archives"]
    assert "human" in unasked.stdout

    done = run_inside(tmp_path, "forget", "key is under", "ann", "--yes")
    assert "Forgotten in 2 places." in done.stdout
    assert "`perdure undo ann 1` brings it back." in done.stderr
    again = run_inside(tmp_path, "forget", "key is under", "ann", "--yes")
    assert "--erase removes the rest" in again.stderr

    assert json.loads(run_inside(tmp_path, "undo", "ann", "--json").stdout) == {
        "undone": 1,
        "restored": 2,
        "conflicts": [],
    }
    listed = run_inside(tmp_path, "undo", "ann", "--list")
    assert ("undone" in listed.stdout, "`perdure undo ann NUMBER` undoes" in listed.stderr) == (True, True)

    (tmp_path / "chat_history").write_text("\n# 1\n+tea?\n\n# 2\n+the key is\n+under the pot\n")
    erased = json.loads(run_inside(tmp_path, "forget", "key is under", "ann", "--erase", "--yes", "--json").stdout)
    assert (erased["erased"], erased["correction"]) == (True, None)
    assert not any(b"key is under" in file.read_bytes() for file in tmp_path.iterdir())
    assert "+tea?" in (tmp_path / "chat_history").read_text()
    assert "under" not in (tmp_path / "chat_history").read_text()
    nowhere = run_inside(tmp_path, "forget", "key is under", "ann")
    assert "stands nowhere" in nowhere.stdout


def test_a_passage_is_forgotten_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    """As other commands print it; what begins no id is a text."""
    with open_sync(tmp_path / "perdure.db") as store:
        passage = store.create_agent("ann").archive("The key is under the pot.")

    found = run_inside(tmp_path, "forget", passage.id[:16], "ann", "--yes", "--json")
    text = run_inside(tmp_path, "forget", "run-00000000", "ann", "--yes")

    assert json.loads(found.stdout)["forgotten"] == {"passage": 1}
    assert "'run-00000000' stands nowhere" in text.stdout
