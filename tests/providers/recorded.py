"""Exchanges with real providers, as `payloads/recorded` keeps them: where each one is from, its README says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.http_payloads import Payload

RECORDED = Path(__file__).parent / "payloads" / "recorded"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The exchanges of one conversation, numbered from 1."""

    name: str

    @property
    def streamed(self) -> bool:
        return self.name.endswith("_stream")

    def request(self, number: int = 1) -> Any:
        """The body of a request, as JSON."""
        return self.extract(f"{number}.request")

    def extract(self, name: str) -> Any:
        return json.loads((RECORDED / self.name / f"{name}.json").read_text())

    def answer(self, number: int = 1) -> Payload:
        """The body of an answer, to be served again."""
        if self.streamed:
            return Payload.sse((RECORDED / self.name / f"{number}.response.sse").read_bytes())
        body = (RECORDED / self.name / f"{number}.response.json").read_bytes()
        return Payload(body=body, headers={"content-type": "application/json"})
