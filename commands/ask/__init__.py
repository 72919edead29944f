"""`run.py ask`: a question about one's own documents, answered by an agent or a baseline."""
