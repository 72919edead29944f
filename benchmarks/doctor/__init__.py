"""Whether what a sweep would measure is what its reader thinks: `run.py doctor`."""
