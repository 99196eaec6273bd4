"""What wakes agents: schedules and events."""
