"""Commands: Markdown files whose text is sent as a message, with arguments, by `/NAME`: see `feature.py`."""
