import json
import math
import random
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from synthetic_run import HOSTILE, make_episode, make_run

from agentgym.statistics import newcombe_interval, wilson_interval
from trainers.metrics import METRICS
from trainers.report import write_comparison, write_report
from trainers.report.__main__ import main
from trainers.report.data import Switch, load_run, moving_average
from trainers.report.episodes import choose_episodes, page_html
from trainers.report.page import headline_numbers, render_run
from trainers.run_dir import RunDir, RunDirError

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Checks that tags are balanced and collects text, tags and attributes."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def __contains__(self, text):
        return text in re.sub(r"\s+", " ", " ".join(self.text))


def check(html):
    """Well-formed, self-contained, without script."""
    page = Page(html)
    assert "script" not in page.tags
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        assert name not in ("src", "srcset", "action", "xlink:href"), name
        if name == "href":
            assert re.fullmatch(r"#[a-z]+", value), value
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", html)
    for svg in re.findall(r"<svg.*?</svg>", html, re.S):
        ElementTree.fromstring(svg)
    return page


def any_value(rng):
    """Something that stands in a damaged, foreign or diverged run's metrics."""
    return rng.choice(
        [
            lambda: rng.gauss(0, 1),
            lambda: rng.choice([math.nan, math.inf, -math.inf]),
            lambda: rng.choice([0, 0.0, -0.0, 1, -1, 0.5, 5e-324, 1e-300, 1e308, -1e308]),
            lambda: rng.choice([-1, 1]) * 10 ** rng.uniform(-300, 300),
            lambda: rng.randint(-(10 ** rng.randint(0, 400)), 10 ** rng.randint(0, 400)),
            lambda: rng.choice([True, False, None, "", "<", "NaN", "group", "single"]),
        ]
    )()


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "li2sao-s0"
    run = make_run(path, close=None)
    run.log_trajectories(60, [make_episode(0.0, 7, hostile=True)])
    run.close()
    return path


def test_success_by_type_of_task(tmp_path):
    run = make_run(tmp_path / "run", close=None)
    for step, share in ((61, 0.25), (62, 0.75)):
        run.log_metrics(
            step,
            {
                "eval/test/sampled/success/pick_two": share,
                "eval/test/sampled/success/look": 10**400,
            },
        )
    run.close()
    page = check(render_run(load_run(tmp_path / "run")))
    assert "Success by type of task" in page
    assert "pick_two" in page
    assert "25% -> 75%" in page


class TestFullRun:
    def test_it_is_one_self_contained_page(self, full_run):
        path = write_report(full_run)
        assert path == full_run / "report.html"
        page = check(path.read_text())
        assert path.stat().st_size < 600_000
        for heading in (
            "Result",
            "Success against steps",
            "Success against trajectories",
            "Success against action tokens",
            "Skill of the critic, S",
            "Explained variance",
            "Critic loss",
            "Policy loss",
            "Entropy",
            "Gradient norms",
            "Importance ratio",
            "Tokens held back",
            "Staleness",
            "Faults",
            "Why episodes ended",
            "Episodes",
            "Every metric",
            "Configuration of the run",
        ):
            assert heading in page, heading

    def test_headline_numbers(self, full_run):
        run = load_run(full_run)
        rows = headline_numbers(run)
        assert [(r["split"], r["mode"]) for r in rows] == [
            ("test", "sampled"),
            ("test", "greedy"),
            ("test", "rule"),
            ("test", "oracle"),
        ]
        first = run.evaluations["test", "sampled"][0].numbers["success"]
        last = run.evaluations["test", "sampled"][-1].numbers["success"]
        assert rows[0]["change"] == (last - first, *newcombe_interval(first, 300, last, 300))
        assert rows[0]["after"].interval() == (last, *wilson_interval(last, 300))
        assert rows[2]["before"] is None
        page = check(render_run(run))
        assert f"{100 * first:.1f}% →" in page
        assert f"{100 * (last - first):+.1f} points" in page
        assert "42.0%" in page
        assert "first result bought" in page

    def test_the_switch_is_marked_in_every_chart_of_steps(self, full_run):
        html = render_run(load_run(full_run))
        page = check(html)
        assert "The critic took over after step 27, by its own criterion." in page
        assert "critic takes over after step 27" in page
        assert "threshold 0" in page
        assert html.count('<line class="mark"') > 15

    def test_hostile_text_is_shown_as_text(self, full_run):
        html = render_run(load_run(full_run))
        page = check(html)
        assert "<script>alert('x')</script>" in page
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert "\\x1b[31m" in page

    def test_pages_are_printed_with_their_controls(self, full_run):
        html = render_run(load_run(full_run))
        assert '<span class="chip">Buy Now</span>' in html
        assert '<span class="chip on">navy</span>' in html
        assert "[button_]" not in html

    def test_nothing_heavy_is_imported(self):
        code = (
            "import sys, trainers.report.__main__; "
            "print({'torch', 'transformers', 'matplotlib', 'rich', 'envs'} & set(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "set()\n"


class TestPartialRuns:
    def test_no_rows_at_all(self, tmp_path):
        RunDir.create(tmp_path / "r", "grpo").close("stopped")
        page = check(write_report(tmp_path / "r").read_text())
        assert "The run has not logged a step yet." in page

    def test_one_point(self, tmp_path):
        with RunDir.create(tmp_path / "r", "grpo", total_steps=1) as run:
            run.log_metrics(1, {"success_rate": 0.5, "entropy": 1.0, "loss_policy": 0.0})
        html = write_report(tmp_path / "r").read_text()
        page = check(html)
        assert "no evaluation was logged" in page
        assert "Entropy" in page
        assert 'id="critic"' not in html
        assert 'id="episodes"' not in html

    def test_one_evaluation_only(self, tmp_path):
        with RunDir.create(tmp_path / "r", "grpo") as run:
            run.log_metrics(0, {"eval/test/greedy/success": 0.5})
        rows = headline_numbers(load_run(tmp_path / "r"))
        assert rows[0]["before"] is None
        assert math.isnan(rows[0]["after"].interval()[1])
        page = check(write_report(tmp_path / "r").read_text())
        assert "50.0%" in page

    def test_values_that_are_not_finite_or_huge(self, tmp_path):
        with RunDir.create(tmp_path / "r", "grpo") as run:
            for step in range(1, 60):
                run.log_metrics(
                    step,
                    {
                        "success_rate": math.nan if step % 7 == 0 else 0.5,
                        "loss_policy": [1e308, -1e308, math.inf, 0.1][step % 4],
                        "grad_norm_actor": 10.0 ** (step % 20),
                        "entropy": math.nan,
                        "trajectories": 10**400 if step == 59 else step,
                        "stop/solved": math.nan,
                        "eval/test/sampled/success": 1.5,
                        "eval/test/sampled/n": step,
                    },
                )
        page = check(write_report(tmp_path / "r").read_text())
        assert "no finite values" in page
        assert "59 not finite" in page

    def test_an_interrupted_run_says_so(self, tmp_path):
        run = make_run(tmp_path / "r", steps=12, every=6, switch=None, close=None)
        assert "still going on when this report was written" in check(
            write_report(tmp_path / "r").read_text()
        )
        run.close()
        status = json.loads((tmp_path / "r" / "status.json").read_text())
        status |= {"state": "running", "total_steps": 60}
        (tmp_path / "r" / "status.json").write_text(json.dumps(status))
        page = check(write_report(tmp_path / "r").read_text())
        assert "The run was interrupted after step 12 of 60" in page
        (tmp_path / "r" / "status.json").unlink()
        assert "How the run ended is not known" in check(write_report(tmp_path / "r").read_text())

    def test_failed_and_resumed_runs_say_so(self, tmp_path):
        run = RunDir.create(tmp_path / "r", "x")
        run.log_metrics(1, {"entropy": 1.0})
        run.save_checkpoint(1, {})
        with pytest.raises(RuntimeError), run:
            raise RuntimeError("<b>out of memory</b>")
        page = check(write_report(tmp_path / "r").read_text())
        assert "The run failed after step 1. RuntimeError: <b>out of memory</b>" in page
        with RunDir.open(tmp_path / "r", total_steps=9) as run:
            run.resume()
        page = check(write_report(tmp_path / "r").read_text())
        assert "The run was resumed from step 1." in page
        assert "The run ended after step 1 of 9." in page

    def test_damaged_rows_do_not_prevent_a_report(self, tmp_path):
        make_run(tmp_path / "r", steps=6, every=3, switch=None)
        with open(tmp_path / "r" / "trajectories.jsonl", "r+b") as file:
            file.write(b"garbage")
        page = check(write_report(tmp_path / "r").read_text())
        assert "Not everything could be read" in page
        assert "trajectories.jsonl, line 1: not JSON" in page
        assert "Success against steps" in page

    def test_metrics_the_table_does_not_know(self, tmp_path):
        """A run of a newer version, or with metrics registered elsewhere."""
        RunDir.create(tmp_path / "r", "x").close()
        (tmp_path / "r" / "metrics.jsonl").write_text('{"step":1,"brand_new":3,"phase":"other"}\n')
        assert "brand_new" in check(write_report(tmp_path / "r").read_text())

    def test_no_run(self, tmp_path):
        with pytest.raises(RunDirError, match="not a run directory"):
            write_report(tmp_path)

    @pytest.mark.parametrize("seed", range(4))
    def test_any_metrics_give_a_page(self, tmp_path, seed):
        names = [m.name.replace("<reason>", "solved").replace("<versions>", "2") for m in METRICS]
        names = [re.sub("<[a-z_]+>", "x", name) for name in names if name != "step"]
        rng = random.Random(seed)
        RunDir.create(tmp_path / "r", "x").close()
        for _ in range(30):
            rows = [
                {**{n: any_value(rng) for n in rng.sample(names, rng.randint(0, 25))}, "step": step}
                for step in range(rng.randint(0, 5))
            ]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / "r" / "metrics.jsonl").write_text(lines)
            check(render_run(load_run(tmp_path / "r")))


class TestData:
    def test_positions_carry_over_to_rows_without_counts(self, tmp_path):
        with RunDir.create(tmp_path / "r", "x") as run:
            run.log_metrics(0, {"eval/test/sampled/success": 0.1})
            run.log_metrics(1, {"trajectories": 64, "success_rate": 0.2})
            run.log_metrics(2, {"eval/test/sampled/success": 0.3})
        data = load_run(tmp_path / "r")
        at = [e.at["trajectories"] for e in data.evaluations["test", "sampled"]]
        assert at == [0, 64]
        assert data.position(1, "trajectories") == 64
        assert data.position(0, "trajectories") == 0
        assert data.series("success_rate", "trajectories") == ([64.0], [0.2])

    @pytest.mark.parametrize(
        ("rows", "expected"),
        [
            ([{"phase": "group"}, {"phase": "group"}], []),
            ([{"phase": "group"}, {"phase": "single"}], [Switch(0, "single", False)]),
            (
                [{"phase": "group"}, {"phase": "single", "forced": True, "switch_step": 0}],
                [Switch(0, "single", True)],
            ),
            ([{}, {"switch_step": 1}, {"switch_step": 1}], [Switch(1, "single", False)]),
            (
                [{"phase": p} for p in ("group", "single", "group")],
                [Switch(0, "single", False), Switch(1, "group", False)],
            ),
            ([{"phase": "single"}, {"phase": "single"}], []),
        ],
    )
    def test_switches(self, tmp_path, rows, expected):
        with RunDir.create(tmp_path / "r", "x") as run:
            for step, row in enumerate(rows):
                run.log_metrics(step, row)
        assert load_run(tmp_path / "r").switches == expected

    def test_settings_are_found_at_any_depth(self, tmp_path):
        config = {"gate": {"tau": 0.1, "seed": 9}, "seed": 3}
        RunDir.create(tmp_path / "r", "x", config).close()
        run = load_run(tmp_path / "r")
        assert (run.setting("tau"), run.setting("seed"), run.setting("no")) == (0.1, 3, None)

    def test_moving_average(self):
        assert moving_average([1, 2, 6, math.nan, 4], 3) == [1, 3, 4, 5, 4]
        assert moving_average([1.0], 5) == [1.0]


class TestEpisodes:
    def test_page_html(self):
        page = "Instruction: [SEP] [button] Buy <Now> [button_] [SEP] <img src=x>"
        assert page_html(page) == (
            'Instruction:\n<span class="chip">Buy &lt;Now&gt;</span>\n&lt;img src=x&gt;'
        )
        assert page_html("a\n\n\n\n\nb") == "a\n\nb"
        assert page_html("x" * 7000).endswith("[... 1000 more characters]")

    def test_choice(self, tmp_path):
        make_run(tmp_path / "r")
        rows = load_run(tmp_path / "r").trajectories
        chosen = choose_episodes(rows)
        assert [why for why, _ in chosen] == [
            "solved, late in training",
            "solved, late in training",
            "closest miss, late in training",
            "failed, late in training",
            "solved, early in training",
            "failed, early in training",
        ]
        assert [row["reward"] for _, row in chosen] == [1.0, 1.0, 0.66, 0.0, 1.0, 0.0]
        assert [row["step"] for _, row in chosen][:3] == [51, 41, 51]
        assert choose_episodes([]) == []
        assert choose_episodes([{"step": 1, "turns": []}, {"step": 1}]) == []


class TestComparison:
    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, tmp_path_factory):
        root = tmp_path_factory.mktemp("runs")
        for name, switch in (("li2sao", 9), ("grpo", None)):
            for seed in range(3):
                make_run(
                    root / f"{name}-{seed}", name=name, seed=seed, steps=24, every=8, switch=switch
                )
        return sorted(root.iterdir())

    def test_svg_and_page(self, runs, tmp_path):
        svg, html = write_comparison(runs, tmp_path / "docs" / "curves.html")
        assert (svg.name, html.name) == ("curves.svg", "curves.html")
        root = ElementTree.parse(svg).getroot()
        shown = [e.text for e in root.iter() if e.tag.endswith("}text")]
        for text in ("grpo (3 seeds)", "li2sao (3 seeds)", "trajectories", "action tokens"):
            assert text in shown
        assert "WebShop-v0: success, test split, sampled" in shown
        assert "fixed rule" in shown
        bands = [e for e in root.iter() if (e.get("class") or "").startswith("band")]
        assert len(bands) == 4
        faint = [e for e in root.iter() if "faint" in (e.get("class") or "")]
        assert len(faint) == 12
        hints = [e.text for e in root.iter() if e.tag.endswith("}title")]
        assert "li2sao-2: critic takes over after step 9" in hints
        assert not re.search(r"url\(|@import|href|https?://(?!www\.w3)", svg.read_text())
        page = check(html.read_text())
        assert "Line: mean over seeds; band: least to largest" in page

    def test_means_over_seeds(self, runs, tmp_path):
        _, html = write_comparison(runs[:3], tmp_path / "c")
        shares = [
            load_run(p).evaluations["test", "sampled"][-1].numbers["success"] for p in runs[:3]
        ]
        assert f"{100 * sum(shares) / 3:.1f}%" in check(html.read_text())

    def test_the_mean_curve_is_the_mean(self, tmp_path):
        from trainers.report.comparison import _chart, _Source

        for seed, (slope, scale) in enumerate([(0.01, 10), (0.03, 20)]):
            with RunDir.create(tmp_path / str(seed), "x") as run:
                for step in range(11):
                    run.log_metrics(
                        step,
                        {
                            "trajectories": scale * step,
                            "eval/test/sampled/success": slope * step,
                        },
                    )
        runs = [load_run(tmp_path / str(seed)) for seed in range(2)]
        chart = _chart({"x": runs}, _Source("test", "sampled"), "trajectories")
        mean = chart.lines[-1]
        assert (mean.xs[0], mean.xs[-1]) == (0, 100)  # where both have data
        assert mean.ys[-1] == pytest.approx((0.1 + 0.15) / 2)
        assert mean.band[0][-1] == pytest.approx(0.1)
        assert mean.band[1][-1] == pytest.approx(0.15)

    def test_training_curves_where_evaluations_are_few(self, tmp_path):
        make_run(tmp_path / "a", steps=20, every=20, switch=None)
        svg, _ = write_comparison([tmp_path / "a"], tmp_path / "c")
        assert "success, training episodes" in svg.read_text()
        with pytest.raises(ValueError, match="not every run has 3 evaluations of split 'test'"):
            write_comparison([tmp_path / "a"], tmp_path / "c", split="test")

    def test_nothing_to_draw(self, tmp_path):
        RunDir.create(tmp_path / "r", "x").close()
        with pytest.raises(ValueError, match="none of the runs"):
            write_comparison([tmp_path / "r"], tmp_path / "c")
        with pytest.raises(ValueError, match="at least one"):
            write_comparison([], tmp_path / "c")

    def test_runs_that_end_at_different_places(self, tmp_path):
        make_run(tmp_path / "a", steps=24, every=8, switch=None)
        make_run(tmp_path / "b", steps=4, every=8, seed=1, switch=None, close="stopped")
        svg, html = write_comparison([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
        ElementTree.parse(svg)
        assert "stopped" in check(html.read_text())


class TestCommandLine:
    def test_one_run(self, full_run, tmp_path, capsys):
        assert main([str(full_run), "--out", str(tmp_path / "x.html")]) == 0
        assert capsys.readouterr().out == f"{tmp_path / 'x.html'}\n"
        check((tmp_path / "x.html").read_text())

    def test_several_runs(self, tmp_path, capsys):
        for name in ("a", "b"):
            make_run(tmp_path / name, name=name, steps=9, every=3, switch=None)
        runs = [str(tmp_path / "a"), str(tmp_path / "b")]
        assert main([*runs, "--title", HOSTILE, "--mode", "greedy"]) == 0
        out = capsys.readouterr().out.split()
        assert out == [str(tmp_path / "comparison.svg"), str(tmp_path / "comparison.html")]
        check((tmp_path / "comparison.html").read_text())
        ElementTree.parse(tmp_path / "comparison.svg")

    def test_errors(self, tmp_path, capsys):
        assert main([str(tmp_path)]) == 1
        assert "not a run directory" in capsys.readouterr().err
