"""The explorer: every sample of a run as a row, and its turns one by one."""
