"""Models that run on this machine, without another program."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="local",
    nouns={"model": Noun(modules=("commands",), help="List, get, use or remove models that run on this machine.")},
    sections={"connections": "pages:SECTION"},
    models="models:LocalModels",
)
