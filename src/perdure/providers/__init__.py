"""Models and embedders behind the ports."""
