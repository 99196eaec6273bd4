"""The models this process can reach, by handle `provider/model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.models import Model

__all__ = ["EXTRACTIVE", "ModelRegistry"]

EXTRACTIVE = "perdure/extractive"


class ModelRegistry:
    """`Models` over what the program brings along and what is built in."""

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        self._models = dict(models or {})

    def find(self, handle: str) -> Model | None:
        if handle == EXTRACTIVE and handle not in self._models:
            # Its patterns take a quarter of the time of `import perdure`: they are loaded when they are needed.
            from perdure.providers.extractive import ExtractiveModel

            self._models[handle] = ExtractiveModel()
        return self._models.get(handle)

    def handles(self) -> Sequence[str]:
        return sorted({EXTRACTIVE, *self._models})
