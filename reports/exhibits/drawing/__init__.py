"""How exhibits are drawn: one file a kind of picture, all from numbers, none touches a file."""
