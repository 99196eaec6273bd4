"""The models this process can reach, by handle `provider/model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.ports import Model
from perdure.providers.extractive import ExtractiveModel

__all__ = ["EXTRACTIVE", "ModelRegistry"]

EXTRACTIVE = "perdure/extractive"


class ModelRegistry:
    """`Models` over what the program brings along and what is built in."""

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        self._models: dict[str, Model] = {EXTRACTIVE: ExtractiveModel(), **(models or {})}

    def find(self, handle: str) -> Model | None:
        return self._models.get(handle)

    def handles(self) -> Sequence[str]:
        return sorted(self._models)
