"""Where each fact of a sample was lost, and what that makes the cause of its failure."""
