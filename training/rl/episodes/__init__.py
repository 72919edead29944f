"""Single turns as episodes: many replies to one prompt, in place of whole rollouts."""
