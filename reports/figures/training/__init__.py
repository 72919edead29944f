"""The curves of RL runs, from their metrics.jsonl."""
