"""What commands and the chat show, for people and for programs."""
