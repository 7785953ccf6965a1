import math

import pytest

from agentgym.statistics import mean_interval, newcombe_interval, t_quantile, wilson_interval


def test_wilson_against_published_numbers():
    # Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3.
    for r, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(r / n, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_at_the_ends():
    assert wilson_interval(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1.0, 20)[1] == 1.0
    assert wilson_interval(0.0, 20)[0] == 0.0


def test_newcombe_against_published_numbers():
    # Newcombe 1998 (Statistics in Medicine 17:873), table II, method 10: 56/70 - 48/80.
    assert newcombe_interval(48 / 80, 80, 56 / 70, 70) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert newcombe_interval(0.0, 10, 1.0, 10)[1] == pytest.approx(1.0)


def test_t_quantiles_against_tables():
    table = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 9: 2.2622, 30: 2.0423, 120: 1.9799}
    for degrees, expected in table.items():
        assert t_quantile(degrees) == pytest.approx(expected, abs=5e-5)
    assert t_quantile(2, 0.95) == pytest.approx(2.9200, abs=5e-5)


def test_mean_interval():
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2 - 2.4841, 2 + 2.4841), abs=1e-4)
    mean, low, high = mean_interval([5.0])
    assert mean == 5.0
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize(("share", "n"), [(1.5, 10), (-0.1, 10), (0.5, 0), (math.nan, 5)])
def test_bad_shares(share, n):
    with pytest.raises(ValueError, match="share in"):
        wilson_interval(share, n)


def test_other_bad_values():
    with pytest.raises(ValueError, match="no value"):
        mean_interval([])
    with pytest.raises(ValueError, match="degrees"):
        t_quantile(0)
    with pytest.raises(ValueError, match="probability"):
        t_quantile(3, 0.4)
