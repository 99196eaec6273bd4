"""The sections of a prompt, one file each."""
