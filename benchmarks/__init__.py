"""Programs that measure and print; never part of the test run."""
