"""What a plan will take, before it costs anything: turns, tokens, disk, time."""
