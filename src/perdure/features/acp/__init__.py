"""Agents in editors, such as Zed, over the Agent Client Protocol."""
