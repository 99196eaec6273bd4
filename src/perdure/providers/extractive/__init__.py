"""The model `perdure/extractive`: a small deterministic program that notes and finds what people tell it.

`model` decides what to do, `view` reads a request, `language` and `facts` understand texts, `answers` finds words.
"""

from perdure.providers.extractive.model import ExtractiveModel

__all__ = ["ExtractiveModel"]
