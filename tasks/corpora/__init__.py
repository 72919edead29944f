"""Public corpora: read from a folder, fetched from where they are published, listed."""
