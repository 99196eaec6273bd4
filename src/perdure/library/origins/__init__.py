"""Where memories and answers come from, what was corrected, and what is forgotten."""
