"""The window: token counts, the budget, the plan that makes a request fit, and summaries."""
