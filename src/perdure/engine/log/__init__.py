"""What a run has done so far, and what comes next. Pure functions of its log."""
