"""Where memories and answers come from, and taking them back: why, sources, revert, forget, undo, erase."""
