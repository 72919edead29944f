"""A user's own documents as a task: found, read as text, kept with the run, and asked about."""
