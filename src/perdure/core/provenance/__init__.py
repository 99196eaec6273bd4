"""Where what is remembered comes from, and how far that is trusted."""
