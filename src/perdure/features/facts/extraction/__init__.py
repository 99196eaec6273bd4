"""Extraction of facts in the background: a batch is read, an extractor is called, and what it returns is stored."""
