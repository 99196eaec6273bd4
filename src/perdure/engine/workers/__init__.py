"""Background workers: embedding, files, automatic capture."""
