"""visuals."""
