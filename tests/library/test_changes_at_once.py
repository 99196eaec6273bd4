"""Every verb that changes something, twice at once: the result is the sum of both, or a typed conflict.

The verbs are read from the code: a new one without a case fails here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import pkgutil
import re
import traceback
from pathlib import Path

import pytest

import tests.at_once.agents
import tests.at_once.shared  # noqa: F401
from perdure import features, library
from perdure.features.access.service import Access
from perdure.library.parts.part import AsyncPart
from perdure.testing import ScriptedModel, says
from tests.at_once.reads import ELSEWHERE, READS
from tests.at_once.room import CASES, Room, check_texts, let_changes_meet, play
from tests.support.two_apps import STORES, address_of, two_apps

FULL = os.environ.get("PERDURE_FAULTS") == "full"
SECRET = "a key of tests that is long enough"


MODULES = ("agents", "shared")


def test_every_verb_has_a_case_or_changes_nothing() -> None:
    """A verb that was added is named in none of the three."""
    found = {
        f"{name}.{verb}": function
        for name, kind in {"access": Access, **_parts()}.items()
        for verb, function in vars(kind).items()
        if inspect.iscoroutinefunction(function) and not verb.startswith("_")
    }
    parts = {name.partition(".")[0] for name in found}  # without those of features that are not there
    reads = {f"{name}.{verb}" for name, verbs in READS.items() if name in parts for verb in verbs.split()}

    known = reads | CASES.keys() | ELSEWHERE.keys()
    assert found.keys() == {name for name in known if name.partition(".")[0] in parts}
    assert not reads & CASES.keys()
    assert [name for name in reads if re.search(r"\.store\.write\(|@writes", inspect.getsource(found[name]))] == []


def _parts() -> dict[str, type]:
    """Name without `Async` -> class, of the parts that are made for a store or an agent."""
    for package in (library, features):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    kinds, found = [AsyncPart], dict[str, type]()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        found[kind.__name__.removeprefix("Async")] = kind
    return found


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("module", MODULES)
async def test_two_changes_at_once_are_both_there(
    store: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await address_of(store, tmp_path)
    let_changes_meet(monkeypatch)
    cases = dict.fromkeys(one for some in CASES.values() for one in some if one.__module__.endswith(module))
    wrong = {}
    async with two_apps(address, ScriptedModel(otherwise=lambda _: says("Yes.")), settings={"secret_key": SECRET}) as (
        a,
        b,
    ):
        room = Room(a, b)
        for one in cases:
            try:
                async with asyncio.timeout(20):
                    await play(room, one)
                    if FULL:
                        await check_texts(room)
            except Exception as error:
                wrong[one.__name__] = "".join(traceback.format_exception(error)[-2:])
        await check_texts(room)  # reads all that the cases have made: after each of them only in the long form
    if wrong:
        pytest.fail("\n".join(f"{name}: {error}" for name, error in wrong.items()), pytrace=False)
