"""What the runner drives with: its units of work, and how it lets go of its runs."""
