"""The model `perdure/extractive`: a small deterministic program that notes and finds what people tell it.

`model` is the adapter, `view` reads a request, `plan` decides; the rest understands text (`sentences`, `questions`,
`facts`), keeps the lines of a block (`notes`), and finds words for an answer (`answers`, `quotes`, `phrases`).
"""

from perdure.providers.extractive.model import ExtractiveModel

__all__ = ["ExtractiveModel"]
