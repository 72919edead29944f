"""What all families build haystacks with: the frame, lazy lines, token counts, published cells."""
