"""The exhibits themselves, one file a paper or a kind: what each shows, as data."""
