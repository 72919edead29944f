"""The tables, one file a kind."""
