"""What features name is there: a wrong name would show only where it is used."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import perdure
from perdure.core.features import Feature, Point, find_features
from tests.support.cases import for_each

PACKAGE = Path(perdure.__file__).parent


@functools.cache
def points() -> set[str]:
    """The names of the points in all sources."""
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    return {name for text in texts for name in re.findall(r'\bPoint\(\s*"(\w+)"\s*\)', text)}


def references(feature: Feature) -> Iterator[str]:
    """Every module, and name in one, that a feature plugs in."""
    for noun in (*feature.nouns.values(), *feature.verbs.values()):
        yield from noun.modules
    yield from (*feature.routes, *feature.services, *filter(None, (feature.tools, feature.models, feature.copies)))
    yield from (*feature.sections.values(), *feature.points.values(), *feature.parts.values())
    yield from (reference.partition(".")[0] for reference in feature.agent_parts.values())


@for_each(find_features())
def test_what_a_feature_names_is_there(feature: Feature) -> None:
    """Its folder has its name; modules, names in them, and the points at which it is called."""
    assert feature.folder.is_dir()

    for reference in references(feature):
        assert feature.load(reference)
    assert feature.points.keys() <= points()


def test_a_point_calls_what_features_have_for_it() -> None:
    """One that no feature names calls nothing."""
    point: Point[[int], int] = Point("nowhere")

    assert point(3) == []
