"""Multi-hop questions about a world that is invented anew for every seed."""
