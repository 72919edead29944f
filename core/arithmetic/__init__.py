"""Numbers that more than one room needs: the interval of a mean, the sizes of models."""
