"""What a report knows of a run: the store's reader, and the published numbers."""
