"""What an organisation has to do, and its removal."""
