"""The page: its template, and what it says in words."""
