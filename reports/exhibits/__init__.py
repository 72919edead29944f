"""The papers' exhibits by name: from their printed numbers, from runs, or both side by side."""
