"""Every verb of `Tx` has a case in the store contract: a new one without a case fails here."""

from __future__ import annotations

import ast
from pathlib import Path

import tests.contracts
from tests.contracts.isolation import noun_of, verbs

FOLDER = Path(tests.contracts.__file__).parent
NO_CASES = frozenset({"organisations.py", "isolation.py", "isolation_values.py"})
"""They only try whether another organisation is kept out."""


def used(folder: Path) -> set[tuple[str, str]]:
    """(noun, verb) of every `tx.noun.verb` and `tx.of(Noun).verb` in the cases."""
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse("" if path.name in NO_CASES else path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(attr=verb, value=ast.Attribute(attr=noun, value=ast.Name(id="tx"))):
                    found.add((noun, verb))
                case ast.Attribute(
                    attr=verb,
                    value=ast.Call(func=ast.Attribute(attr="of", value=ast.Name(id="tx")), args=[ast.Name(id=kind)]),
                ):
                    found.add((noun_of(kind), verb))
    return found


def test_every_verb_has_a_case() -> None:
    """Used at least; that it does what it says is the case's own business."""
    there = {(noun, verb) for noun, verb, _ in verbs()}
    assert len(there) > 200

    assert sorted(there - used(FOLDER)) == [], "call each verb of a table in a case of tests/contracts"


def test_a_verb_without_a_case_is_found(tmp_path: Path) -> None:
    """One that is called on something else, or in a file that has no cases, does not count."""
    (tmp_path / "agents.py").write_text("tx.agents.get(1)\nstore.agents.put(2)\n")
    (tmp_path / "organisations.py").write_text("tx.blocks.get(1)\n")

    assert used(tmp_path) == {("agents", "get")}
