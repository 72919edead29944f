"""RULER's own table: effective length and weighted means."""

from __future__ import annotations

import pytest

from reports.exhibits.papers.ruler import Line, weighted


def test_weights_rise_and_fall_with_the_length() -> None:
    line = Line("m", 131_072, {4_096: 90.0, 8_192: 85.6, 16_384: 34.4})
    assert line.effective == 8_192
    assert line.mean == pytest.approx(70.0)
    assert line.to_long == pytest.approx((90 + 2 * 85.6 + 3 * 34.4) / 6)
    assert line.to_short == pytest.approx((3 * 90 + 2 * 85.6 + 34.4) / 6)
    assert weighted([5.0], [1]) == 5.0


def test_a_row_of_the_paper_has_its_means() -> None:
    # RULER's Table 3: GPT-4's scores at 4K to 128K and its three means.
    scores = (96.6, 96.3, 95.2, 93.2, 87.0, 81.2)
    gpt_4 = Line("GPT-4", 131_072, {4_096 << place: s for place, s in enumerate(scores)})
    assert gpt_4.effective == 65_536
    assert gpt_4.mean == pytest.approx(91.6, abs=0.05)
    assert gpt_4.to_long == pytest.approx(89.0, abs=0.06)
    assert gpt_4.to_short == pytest.approx(94.1, abs=0.06)
