import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.report.chart import (
    Chart,
    Column,
    Interval,
    Line,
    Mark,
    Rule,
    draw,
    draw_columns,
    draw_strip,
)
from trainers.report.scales import choose_scale, round_ticks, short_number

ANY = st.floats(allow_nan=True, allow_infinity=True)


def parse(svg):
    """Every drawing must be well-formed XML with finite numbers in its geometry."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "d", "width", "height"):
                assert not re.search("nan|inf", value), (name, value)
    return root


def texts(root):
    return [e.text for e in root.iter() if e.tag.endswith("}text")]


def hints(root):
    return [e.text for e in root.iter() if e.tag.endswith("}title")]


class TestTicks:
    def test_examples(self):
        assert round_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
        assert round_ticks(-0.37, 0.52) == [-0.2, 0.0, 0.2, 0.4]
        assert round_ticks(0, 3840) == [0, 1000, 2000, 3000]
        assert round_ticks(1.0, 1.0005) == [1.0, 1.0001, 1.0002, 1.0003, 1.0004, 1.0005]

    @given(st.floats(-1e300, 1e300), st.floats(1e-12, 1e6))
    def test_ticks_are_round_inside_and_few(self, low, relative):
        high = low + abs(low or 1.0) * relative
        if not low < high:
            return
        ticks = round_ticks(low, high)
        slack = 1e-6 * (high - low) + 1e-12 * abs(low)
        assert 2 <= len(ticks) <= 101
        assert all(low - slack <= t <= high + slack for t in ticks)
        assert ticks == sorted(ticks)

    @pytest.mark.parametrize("ends", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1)])
    def test_bad_ranges(self, ends):
        with pytest.raises(ValueError, match="finite range"):
            round_ticks(*ends)

    @pytest.mark.parametrize(
        ("value", "step", "text"),
        [
            (0, 1, "0"),
            (0.6, 0.2, "0.6"),
            (1.5, 0.5, "1.5"),
            (250_000, 50_000, "250k"),
            (1_500_000, 500_000, "1.5M"),
            (2e9, 1e9, "2G"),
            (5000, 1000, "5000"),
            (2e-5, 1e-5, "2e-5"),
            (-0.02, 0.01, "-0.02"),
        ],
    )
    def test_labels(self, value, step, text):
        assert short_number(value, step) == text


class TestScales:
    def test_shares_start_at_zero_and_are_labelled_as_percentages(self):
        scale = choose_scale([0.2, 0.55], percent=True)
        assert scale.low == 0
        assert 0.55 < scale.high <= 1
        assert [scale.label(t) for t in scale.ticks] == ["0%", "20%", "40%"]
        assert choose_scale([0.99], percent=True).high == 1.0
        small = choose_scale([0.0, 0.002], percent=True)
        assert [small.label(t) for t in small.ticks][:2] == ["0.00%", "0.05%"]

    def test_wide_positive_data_is_logarithmic(self):
        scale = choose_scale([1e-3, 1.0, 2e4])
        assert scale.log
        assert scale(1e-3) == 0
        assert scale(scale.high) == 1
        assert not choose_scale([1e-3, 2e4], log=False).log
        assert not choose_scale([-1.0, 2e4]).log

    def test_single_far_outlier_does_not_hide_the_rest(self):
        data = [math.sin(i) for i in range(100)]
        scale = choose_scale([*data, 1e9])
        assert scale.high < 100
        assert choose_scale(data).high > 1

    def test_anchors_are_inside(self):
        scale = choose_scale([0.4, 0.5], anchor=[0.0])
        assert scale.low == 0
        assert 0 in scale.ticks

    @given(st.lists(ANY), st.booleans(), st.booleans(), st.sampled_from([None, True, False]))
    def test_any_data_gives_a_proper_range(self, data, percent, tight, log):
        scale = choose_scale(data, percent=percent, tight=tight, log=log)
        assert math.isfinite(scale.low)
        assert math.isfinite(scale.high)
        assert scale.low < scale.high
        for tick in scale.ticks:
            assert -0.001 <= scale(tick) <= 1.001
            assert scale.label(tick)


class TestChart:
    def test_a_usual_chart(self):
        line = Line(
            [0, 1, 2],
            [0.1, 0.5, 0.4],
            "test & train",
            0,
            intervals=[Interval(1, 0.5, 0.4, 0.6, "n < 3")],
            band=([0.0, 0.4, 0.3], [0.2, 0.6, 0.5]),
        )
        chart = Chart(
            "A <title>", [line], percent=True, marks=[Mark(1, "switch")], rules=[Rule(0.42, "rule")]
        )
        root = parse(draw(chart))
        assert root.get("aria-label") == "A <title>"
        assert {"test & train", "switch", "rule", "step", "0%"} <= set(texts(root))
        assert "test & train at 1: 50%" not in hints(root)
        assert "test & train at 1: 50.0%" in hints(root)
        assert "n < 3" in hints(root)
        marks = [e for e in root.iter() if e.get("class") == "mark"]
        assert len(marks) == 1
        middle = (52 + 460 - 14) / 2
        assert float(marks[0].get("x1")) == pytest.approx(middle, abs=0.1)

    def test_coordinates(self):
        root = parse(draw(Chart("t", [Line([0, 10], [0.0, 1.0])], percent=True)))
        path = next(e.get("d") for e in root.iter() if e.tag.endswith("path"))
        assert path == "M52,202L446,12"

    def test_gaps_where_values_are_not_finite(self):
        line = Line([0, 1, 2, 3, 4, 5], [1.0, 2.0, math.nan, 4.0, math.inf, 3.0])
        root = parse(draw(Chart("t", [line])))
        path = next(e.get("d") for e in root.iter() if e.tag.endswith("path"))
        assert path.count("M") == 1  # 0-1 joined; 3 and 5 stand alone as dots
        assert len([e for e in root.iter() if e.get("class") == "f0"]) == 2

    @pytest.mark.parametrize("ys", [[], [math.nan], [math.inf, -math.inf]])
    def test_nothing_to_draw_is_said(self, ys):
        root = parse(draw(Chart("t", [Line(range(len(ys)), ys)])))
        assert "no finite values" in texts(root)

    def test_clipped_points_are_counted(self):
        ys = [math.sin(i) for i in range(100)]
        ys[50] = 1e12
        root = parse(draw(Chart("t", [Line(range(100), ys)])))
        assert "1 point beyond the axis" in texts(root)

    def test_long_curves_are_thinned_but_keep_their_extremes(self):
        ys = [0.5] * 20_000
        ys[12_345], ys[777] = 0.9, 0.1
        svg = draw(Chart("t", [Line(range(20_000), ys)], log=False, percent=True))
        assert len(svg) < 20_000
        path = next(e.get("d") for e in parse(svg).iter() if e.tag.endswith("path"))
        heights = [float(p.split(",")[1]) for p in re.split("[ML]", path) if p]
        assert len(heights) < 450
        assert min(heights) < sorted(heights)[1] - 10
        assert max(heights) > sorted(heights)[-2] + 10

    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(st.tuples(st.floats(-1e300, 1e300), ANY), max_size=30),
        st.booleans(),
        st.booleans(),
        st.lists(ANY, max_size=2),
    )
    def test_any_data_can_be_drawn(self, points, percent, zero, rules):
        points = sorted(points, key=lambda p: p[0])
        xs, ys = [x for x, _ in points], [y for _, y in points]
        line = Line(xs, ys, "x", band=(ys, ys), intervals=[Interval(0, 1, 0, 2)], dots=True)
        finite = [Rule(y, "r") for y in rules if math.isfinite(y)]
        parse(draw(Chart("t", [line], percent=percent, zero=zero, rules=finite, marks=[Mark(1)])))

    def test_hostile_labels(self):
        evil = "</title><script>x</script>\"'&"
        line = Line([0, 1], [0, 1], evil, intervals=[Interval(0, 0, 0, 0, evil)])
        svg = draw(Chart(evil, [line], x_label=evil, marks=[Mark(0, evil)], rules=[Rule(1, evil)]))
        parse(svg)
        assert "<script" not in svg


def test_columns():
    columns = [
        Column("1", {"solved": 0.25, "failed": 0.75}),
        Column("2", {"solved": 1.0}),
        Column("3"),
    ]
    root = parse(draw_columns("t", columns, [("solved", 2), ("failed", 4)]))
    bars = [e for e in root.iter() if e.tag.endswith("rect") and e.get("rx") is None]
    assert len(bars) == 3
    heights = [float(bar.get("height")) for bar in bars]
    assert heights[1] == pytest.approx(3 * heights[0], rel=0.01)
    assert "step 1: failed 75.0%" in hints(root)
    parse(draw_columns("t", [], [("solved", 2)]))


def test_strip():
    root = parse(
        draw_strip("t", [((0.5, 0.4, 0.6), 0), ((0.2, math.nan, math.nan), 7)], [(0.42, "r")])
    )
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    assert [c.get("cx") for c in circles] == ["120", "51.6"]
    assert len([e for e in root.iter() if e.tag.endswith("path")]) == 1
