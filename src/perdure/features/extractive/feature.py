"""The model `perdure/extractive`: a small deterministic program that notes and finds what people tell it."""

from perdure.core.features import BuiltIn, Feature

FEATURE = Feature(
    name="extractive",
    built_in={
        "perdure/extractive": BuiltIn(  # EXTRACTIVE, whose module each start would wait for
            model="model:ExtractiveModel",
            about="built in, needs no key: no language model, it notes and finds what you tell it",
        )
    },
)
