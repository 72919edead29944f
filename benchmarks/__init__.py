"""Suites as data, the plan of cells, the sweep that runs them, the store that keeps them."""
