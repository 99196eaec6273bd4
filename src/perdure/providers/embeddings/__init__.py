"""Embedders: texts to vectors, on this machine or at an endpoint. Nothing here is imported before it is needed."""
