"""Commands that take a suite: what it costs, whether it would measure what it says, and its run."""
