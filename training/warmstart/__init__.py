"""The pocket models' supervised training, from nothing, on generated demonstrations."""
