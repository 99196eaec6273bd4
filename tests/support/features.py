"""Which tests need which features: those of a feature that is not there are left out."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import perdure

TESTS = Path(__file__).parents[1]
FEATURES = Path(perdure.__file__).parent / "features"
_NAMED = re.compile(r"\bperdure\.features\.(\w+)")


def is_there(name: str) -> bool:
    """Whether this program has a feature."""
    return (FEATURES / name / "feature.py").is_file()


@functools.cache
def missing(path: Path) -> frozenset[str]:
    """The features that are not there, of those that a file of tests names, and what it imports of the tests."""
    if not path.is_file():
        return frozenset()
    text = path.read_text(encoding="utf-8")
    found = {name for name in _NAMED.findall(text) if not is_there(name)}
    for module in {line[1] for line in re.finditer(r"^(?:from|import) (tests[\w.]*)", text, re.MULTILINE)}:
        place = TESTS.parent / module.replace(".", "/")
        found |= missing(place.with_suffix(".py")) | missing(place / "__init__.py")
    folder = path.relative_to(TESTS).parts[:2]
    if folder[0] == "features" and len(path.relative_to(TESTS).parts) > 2 and not is_there(folder[1]):
        found.add(folder[1])
    return frozenset(found)
