"""The figures, one file a kind, and their common look."""
