"""What is said to agents and by them, in conversations."""
