"""Definitions in Markdown, in six layers, and plug-ins that bring some: see `feature.py`."""
