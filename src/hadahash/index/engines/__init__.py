"""The index engines. Importing an engine's module registers it."""
