"""index/engines."""
