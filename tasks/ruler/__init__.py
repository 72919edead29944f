"""RULER's thirteen synthetic tasks: one file a family, and what their haystacks are made of."""
