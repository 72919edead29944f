"""A run in the forms that other tools open."""
