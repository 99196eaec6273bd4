"""Agent files: exported, and imported."""
