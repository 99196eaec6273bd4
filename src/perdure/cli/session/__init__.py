"""What commands and the chat share: the open store, the choice of an agent, questions."""
