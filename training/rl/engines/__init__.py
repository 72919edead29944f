"""Where rollouts come from: PyTorch, vLLM in process, the Ray Serve pool."""
