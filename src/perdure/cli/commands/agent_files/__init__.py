"""Agent files in the terminal."""
