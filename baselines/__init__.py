"""What the agents are compared with: one file a baseline, prompts as constants on top."""
