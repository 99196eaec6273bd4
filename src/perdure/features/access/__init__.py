"""Who may use a store through a server: organisations with users and keys, and the log of who did what."""
