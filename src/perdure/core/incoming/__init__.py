"""What arrives from outside: bodies and JSON, read within limits before they become objects."""
