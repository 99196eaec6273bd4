"""One run, from message to stop reason. The engine sees ports, never adapters."""
