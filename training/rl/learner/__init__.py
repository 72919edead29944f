"""What an update is made by: packing, the policy's logprobs, AdamW, shards, workers."""
