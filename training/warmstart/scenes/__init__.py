"""What the turns of the richer tasks show: tasks/fiction, cwe and fwe."""
