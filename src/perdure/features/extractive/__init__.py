"""The model `perdure/extractive`: a small deterministic program that notes and finds what people tell it."""
