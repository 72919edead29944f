"""What all families build haystacks with: lazy lines, token counts, published cells."""
