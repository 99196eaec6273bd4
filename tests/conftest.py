"""What every test gets: an event loop for coroutine tests, property tests without a deadline."""

from __future__ import annotations

import gc
import os
import sys
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from perdure.providers.provider import PROVIDERS

if TYPE_CHECKING:
    from playwright.async_api import Browser

# What the tester has set up for models must not decide how tests end, in child processes neither.
PROVIDER_VARIABLES = (
    *(name for provider in PROVIDERS.values() for name in (*provider.keys, *provider.urls)),
    *("PERDURE_MODEL", "PERDURE_CATALOG"),
)
for name in PROVIDER_VARIABLES:
    os.environ.pop(name, None)
os.environ["PERDURE_PROBE_LOCAL"] = "0"
os.environ["XDG_DATA_HOME"] = str(Path(__file__).with_name("nowhere"))  # nor do local models that were fetched
os.environ["PERDURE_EMBEDDING"] = "none"  # a local model that happens to be installed stays out of it too

# Compiled modules are kept (`make clean` removes them): without them each start of the program and each rewriting of
# the tests' assertions costs again what it cost the first time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test asks a server whose certificate the system knows. Reading the system's bundle takes 20 ms of CPU for each
# client, and there are hundreds; an empty folder takes none.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.devnull

# Collecting makes a million objects that all live to the end: by default a sixth of its time goes to looking for
# garbage.
gc.set_threshold(100_000, 20, 20)

# Contracts ship as plain classes with plain asserts; rewritten, a failing one shows its values.
pytest.register_assert_rewrite("perdure.testing", "tests.contracts")

# A loaded machine is slow, not wrong: a time limit per example fails tests that hold. `make test` tries the same
# examples in each run, so that it fails for what a change did; `make faults` tries many others.
FULL = os.environ.get("PERDURE_FAULTS") == "full"
settings.register_profile("perdure", deadline=None, max_examples=500 if FULL else 10, derandomize=not FULL)
settings.load_profile("perdure")


def _name_test_of_processes() -> None:
    """Have asyncio's warning about a process that nobody waited for name the test that started it: it comes later, when
    the garbage collector meets the process."""
    start, describe = BaseSubprocessTransport.__init__, BaseSubprocessTransport.__repr__

    def start_in_test(self: BaseSubprocessTransport, *args: Any, **options: Any) -> None:
        self.test = os.environ.get("PYTEST_CURRENT_TEST")  # type: ignore[attr-defined]
        start(self, *args, **options)

    BaseSubprocessTransport.__init__ = start_in_test  # type: ignore[method-assign]
    BaseSubprocessTransport.__repr__ = lambda self: f"{describe(self)} of {self.test}"  # type: ignore


_name_test_of_processes()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop that anyio's plugin runs coroutine tests in."""
    return "asyncio"


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The browser of all tests that open pages."""
    from tests.ui.chromium import launch

    async with launch() as browser:
        yield browser


@pytest.fixture(scope="module", autouse=True)
def _new_stores_are_copies(request: pytest.FixtureRequest) -> Iterator[None]:
    """In all modules but those that are marked `migrates`: what they test is how a store is made."""
    if request.node.get_closest_marker("migrates"):
        yield
        return
    from tests.support.new_stores import copied_stores  # not sooner: what it imports has assertions to be rewritten

    with copied_stores():
        yield


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files of features that are not there."""
    if collection_path.suffix != ".py":
        return None
    from tests.support.features import missing

    return True if missing(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by these marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Chromium or PostgreSQL as slow, and skip the tests of features that are not there."""
    from tests.support.features import is_there

    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()) or "postgres" in item.nodeid:
            item.add_marker(pytest.mark.slow)
        for mark in item.iter_markers("uses"):
            if lacks := [name for name in mark.args if not is_there(name)]:
                item.add_marker(pytest.mark.skip(reason=f"without {', '.join(lacks)}"))


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of the garbage collector's rounds: it nearly all lives to the end."""
    gc.freeze()  # without a round before it, which takes half a second
    gc.set_threshold(10_000, 10, 10)  # what tests leave in circles would be 1.5 GB at the end of a process


def pytest_sessionfinish() -> None:
    """Stop what the tests of this process have shared."""
    from tests.support.at_end import at_end

    at_end.close()
