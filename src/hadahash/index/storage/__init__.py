"""index/storage."""
