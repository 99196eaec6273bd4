"""What an agent knows as facts, with the times at which they were true, and where they come from."""
