"""A listener that keeps what the program reports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from perdure.core.telemetry.port import Fact, Work

W = TypeVar("W")


class RecordedTelemetry:
    """`Telemetry` that keeps works in the order in which they ended, and facts in the order in which they came."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.facts: list[Fact] = []

    @contextlib.contextmanager
    def during(self, work: Work) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            work.error = work.error or type(error).__name__
            raise
        finally:
            self.works.append(work)

    def count(self, fact: Fact) -> None:
        self.facts.append(fact)

    def of(self, kind: type[W]) -> list[W]:
        """The works and facts of one kind."""
        return [one for one in (*self.works, *self.facts) if isinstance(one, kind)]
