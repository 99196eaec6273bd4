"""The model `perdure/extractive`: a small deterministic program that notes and finds what people tell it."""

from __future__ import annotations

from perdure.core.features import BuiltIn, Feature
from perdure.core.models import EXTRACTIVE

FEATURE = Feature(
    name="extractive",
    built_in={
        EXTRACTIVE: BuiltIn(
            model="model:ExtractiveModel",
            about="built in, needs no key: no language model, it notes and finds what you tell it",
        )
    },
)
