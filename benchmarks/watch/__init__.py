"""A sweep watched from outside: its state file, and its metrics for Prometheus."""
