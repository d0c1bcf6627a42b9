"""An index in a folder: manifest, segment files, and items in SQLite."""
