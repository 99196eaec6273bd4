"""Groups of agents on the wire."""
