"""Many small cases as one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Try a test with each of many cases that take less than a millisecond, and tell all that fail.

    Pytest and its processes take 3 ms around each test. A test with one parameter gets the case, one with several its
    values.
    """
    tried = list(cases)

    def as_one(test: Callable[..., None]) -> Callable[[], None]:
        has_one = len(inspect.signature(test).parameters) == 1

        @functools.wraps(test)
        def try_all() -> None:
            failures = []
            for case in tried:
                try:
                    test(case) if has_one else test(*case)
                except Exception as error:
                    error.add_note(f"the case is {case!r:.1000}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(tried)} cases", failures)

        del try_all.__wrapped__  # or pytest would take the parameters for fixtures
        return try_all

    return as_one
