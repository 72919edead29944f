"""The 95% interval of a mean score in [0, 1].

One formula serves both kinds of score. For 0/1 scores it is Wilson's score interval (Wilson
1927), which keeps its coverage at small n and near 0 and 1, where the normal one collapses
(Brown, Cai and DasGupta, Statistical Science 16(2), 2001). For shares (a multi-value needle
scored 0.75) the mean takes the place of the proportion: a variable in [0, 1] with mean p has
variance at most p(1 - p) (Bhatia and Davis, 2000), so the interval is at least as wide as it
must be. A bootstrap would have width zero when all of 8 samples score 1.
"""

from __future__ import annotations

import math

Z95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""


def wilson(mean: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, or of the mean of scores in [0, 1]. `n` may be an
    effective number of samples, which need not be whole.

    Raises:
        ValueError: `n` is not positive, or `mean` is outside [0, 1].
    """
    if n <= 0 or not 0.0 <= mean <= 1.0:
        raise ValueError(f"wilson: got mean {mean} of {n} samples, expected a share of n > 0")
    shrink = 1.0 + z * z / n
    centre = (mean + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(mean * (1.0 - mean) / n + z * z / (4.0 * n * n))
    # At 0 and 1 the end is exact in theory and off by a rounding error in floats.
    low = 0.0 if mean == 0.0 else max(0.0, centre - half)
    high = 1.0 if mean == 1.0 else min(1.0, centre + half)
    return low, high
