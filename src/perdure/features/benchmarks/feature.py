"""Published benchmarks of memory, run through the library that everybody uses, beside simple baselines."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="benchmarks",
    uses=("facts", "files"),
    verbs={"bench": Noun(modules=("commands",), help="Measure what agents remember, by published benchmarks.")},
)
