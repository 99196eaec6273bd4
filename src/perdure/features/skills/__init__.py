"""Skills: instructions for a kind of work, from files and from agents themselves, which an agent reads on demand."""
