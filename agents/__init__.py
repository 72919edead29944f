"""The memory agents under test: one file an agent, prompts as constants on top."""
