"""What was forgotten or corrected, how a text is taken out of others, and where facts come from."""
