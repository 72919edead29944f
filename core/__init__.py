"""The vocabulary that everything else speaks: types, errors, tokens, contexts, the rollout."""
