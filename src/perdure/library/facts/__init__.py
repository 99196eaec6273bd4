"""What agents know as facts."""
