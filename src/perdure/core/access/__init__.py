"""Who may do what: organisations, their users and API keys, scopes, limits, and the audit log. Values only."""
