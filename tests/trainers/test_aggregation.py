"""Aggregation does not depend on micro-batches, padding or order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.aggregation import Reduction, aggregate, merge_metrics

torch.set_num_threads(1)

LOSSES = torch.tensor([[1.0, 1, 0, 0], [2, 2, 2, 2]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
WORKED = [
    ("token_mean", 10 / 6),
    ("seq_mean_token_mean", 1.5),
    ("seq_mean_token_sum", 5.0),
    ("constant", 0.625),
]


def over(mask, how):
    return Reduction.over(mask.sum(-1), how, max_length=8 if how == "constant" else None)


@pytest.mark.parametrize(("how", "value"), WORKED)
def test_worked_numbers(how, value) -> None:
    whole = Reduction(how, max_length=8 if how == "constant" else None)
    assert float(aggregate(LOSSES, MASK, whole)) == pytest.approx(value, abs=1e-12)
    assert float(aggregate(LOSSES, MASK, over(MASK, how))) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("how", "value"), WORKED)
def test_micro_batches_padding_and_order(how, value) -> None:
    reduction = over(MASK, how)
    wide = torch.nn.functional.pad(LOSSES, (3, 2), value=99.0)
    wide_mask = torch.nn.functional.pad(MASK, (3, 2))
    split = sum(float(aggregate(wide[i : i + 1], wide_mask[i : i + 1], reduction)) for i in (1, 0))
    assert split == pytest.approx(value, abs=1e-12)


def test_mean_of_micro_batch_means_is_another_number() -> None:
    parts = [float(aggregate(LOSSES[i : i + 1], MASK[i : i + 1])) for i in (0, 1)]
    assert sum(parts) / 2 == 1.5 != pytest.approx(10 / 6)


def slow_loss(losses, mask, how, max_length):
    rows = [
        [x for x, m in zip(row, row_mask, strict=True) if m]
        for row, row_mask in zip(losses, mask, strict=True)
    ]
    rows = [row for row in rows if row]
    if not rows:
        return 0.0
    if how == "token_mean":
        return sum(map(sum, rows)) / sum(map(len, rows))
    if how == "seq_mean_token_mean":
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    if how == "seq_mean_token_sum":
        return sum(map(sum, rows)) / len(rows)
    return sum(map(sum, rows)) / (len(rows) * max_length)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-8, 8), st.booleans()), min_size=4, max_size=4),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([how for how, _ in WORKED]),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_any_split_in_any_order_against_a_slow_reference(rows, how, size, random) -> None:
    losses = torch.tensor([[x / 4 for x, _ in row] for row in rows], dtype=torch.float64)
    mask = torch.tensor([[m for _, m in row] for row in rows])
    order = random.sample(range(len(rows)), len(rows))
    reduction = over(mask, how)
    total = 0.0
    for start in range(0, len(order), size):
        at = order[start : start + size]
        total += float(aggregate(losses[at], mask[at], reduction))
    expected = slow_loss(losses.tolist(), mask.tolist(), how, 8)
    assert total == pytest.approx(expected, abs=1e-12)


def test_trajectory_over_several_rows_counts_as_one_sequence() -> None:
    # One trajectory of 2 + 4 action tokens as two rows, another of 2 as one.
    rows = torch.tensor([[1.0, 1, 0, 0], [2, 2, 2, 2], [3, 3, 0, 0]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]])
    one_row_each = torch.tensor([[1.0, 1, 2, 2, 2, 2], [3, 3, 0, 0, 0, 0]])
    one_row_mask = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0]])
    for how, _ in WORKED:
        long = over(one_row_mask, how)
        short = Reduction(
            how, long.denominator, long.max_length, sequence_tokens_B=torch.tensor([6, 6, 2])
        )
        assert float(aggregate(rows, mask, short)) == pytest.approx(
            float(aggregate(one_row_each, one_row_mask, long)), abs=1e-6
        )


def test_sequences_without_action_tokens_are_in_no_mean() -> None:
    losses = torch.cat([LOSSES, torch.full((1, 4), 50.0, dtype=torch.float64)])
    mask = torch.cat([MASK, torch.zeros(1, 4, dtype=torch.long)])
    for how, value in WORKED:
        assert float(aggregate(losses, mask, over(mask, how))) == pytest.approx(value)


@pytest.mark.parametrize("how", [how for how, _ in WORKED])
def test_fully_masked_batch_is_a_connected_zero(how) -> None:
    x = torch.tensor([[1.0, float("nan")]], requires_grad=True)
    mask = torch.zeros(1, 2)
    loss = aggregate(x, mask, over(mask, how))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert x.grad.tolist() == [[0.0, 0.0]]


def test_denominator_and_numerator_use_one_mask() -> None:
    # 30 tokens, 5 of them of a truncated row left out of the loss: the denominator is 25.
    losses = torch.ones(6, 5)
    mask = torch.ones(6, 5)
    mask[5] = 0
    assert Reduction.over(mask.sum(-1)).denominator == 25
    assert float(aggregate(losses, mask, Reduction.over(mask.sum(-1)))) == 1.0


def test_bad_reductions_are_refused() -> None:
    with pytest.raises(ValueError, match="'mean'"):
        Reduction("mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_length >= 1, got None"):
        Reduction("constant")
    with pytest.raises(ValueError, match="max_length >= 1, got None"):
        Reduction.over([3, 2], "constant")


def test_merging_metrics_of_micro_batches() -> None:
    merged = merge_metrics(
        [
            {"tokens": 1, "loss": 0.25, "ratio_mean": 1.0, "ratio_max": 3.0, "advantage_rms": 2.0},
            {"tokens": 3, "loss": 0.5, "ratio_mean": 2.0, "ratio_max": 2.0, "advantage_rms": 0.0},
        ]
    )
    assert merged == {
        "tokens": 4,
        "loss": 0.75,
        "ratio_mean": 1.75,
        "ratio_max": 3.0,
        "advantage_rms": 1.0,
    }
    assert merge_metrics([{"tokens": 0.0, "kl": 0.0}]) == {"tokens": 0.0, "kl": 0.0}
    assert merge_metrics([]) == {}
