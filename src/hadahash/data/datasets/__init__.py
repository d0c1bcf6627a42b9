"""data/datasets."""
