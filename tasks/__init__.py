"""Tasks: how a haystack is made, what is asked, what the gold is, and how it is scored."""
