"""The rows of folders, files and what agents have open."""
