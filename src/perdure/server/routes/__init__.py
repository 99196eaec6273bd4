"""Routes, one noun per file."""
