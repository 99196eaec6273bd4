"""An agent's memory as a git repository; see `feature`."""
