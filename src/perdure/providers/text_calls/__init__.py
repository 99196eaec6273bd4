"""Tool calls that models write as text: read, run as real ones or told what is wrong, and never shown."""
