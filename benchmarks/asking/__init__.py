"""`run.py ask`: one question about the user's own documents, as a run of one sample."""
