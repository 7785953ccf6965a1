"""Index convention: token t is predicted, and valued, by what stands before it."""

import math

import pytest
import torch

from trainers.losses import policy_loss, value_loss
from trainers.token_outputs import prefix_values, token_entropy, token_log_probs

torch.set_num_threads(1)


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


IDS = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 3, 0]])


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_log_prob_of_each_token_given_those_before(logits, temperature) -> None:
    found = token_log_probs(logits, IDS, temperature=temperature)
    for b in range(2):
        assert found[b, 0] == 0
        for t in range(1, 5):
            scaled = [math.exp(x / temperature) for x in logits[b, t - 1].tolist()]
            expected = math.log(scaled[IDS[b, t]] / sum(scaled))
            assert float(found[b, t]) == pytest.approx(expected, abs=1e-12)


def test_log_probs_without_the_sampling_temperature_do_not_give_ratio_one(logits) -> None:
    sampled_at = token_log_probs(logits, IDS, temperature=2.0)
    mask, ones = torch.ones(2, 4), torch.ones(2, 4)
    same = policy_loss(
        token_log_probs(logits, IDS, temperature=2.0)[:, 1:], sampled_at[:, 1:], ones, mask
    )
    assert same.metrics["ratio_mean"] == same.metrics["ratio_max"] == 1.0
    off = policy_loss(token_log_probs(logits, IDS)[:, 1:], sampled_at[:, 1:], ones, mask)
    assert abs(off.metrics["ratio_mean"] - 1.0) > 0.01


def test_packed_documents_do_not_predict_each_other(logits) -> None:
    segments = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 2]])
    packed = token_log_probs(logits, IDS, segment_ids_BT=segments)
    plain = token_log_probs(logits, IDS)
    first = torch.tensor([[1, 0, 0, 1, 0], [1, 1, 0, 0, 1]]).bool()
    assert (packed[first] == 0).all()
    assert torch.equal(packed[~first], plain[~first])
    values, _ = prefix_values(logits[..., 0], torch.tensor([5, 5]), segment_ids_BT=segments)
    assert (values[first] == 0).all()
    entropy = token_entropy(logits, segment_ids_BT=segments)
    assert (entropy[first] == 0).all()
    assert (entropy[~first] > 0).all()


def test_each_document_of_a_row_has_the_log_probs_it_has_alone(logits) -> None:
    # The second document starts at token 3; its own first token is not predicted.
    packed = token_log_probs(logits, IDS, segment_ids_BT=torch.tensor([[0, 0, 0, 1, 1]] * 2))
    alone = token_log_probs(logits[:, 3:], IDS[:, 3:])
    assert torch.equal(packed[:, 3:], alone)


def test_entropy_against_its_definition(logits) -> None:
    p = torch.softmax(logits[:, :-1] / 0.5, -1)
    expected = -(p * p.log()).sum(-1)
    found = token_entropy(logits, temperature=0.5)
    assert (found[:, 0] == 0).all()
    torch.testing.assert_close(found[:, 1:], expected)


def test_forbidden_token_adds_nothing_to_the_entropy_and_no_nan_to_its_gradient() -> None:
    logits = torch.tensor([[[0.0, 0.0, -math.inf], [0.0, 0.0, 0.0]]], requires_grad=True)
    entropy = token_entropy(logits)
    assert float(entropy[0, 1].detach()) == pytest.approx(math.log(2))
    entropy.sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_value_of_a_token_is_read_before_it() -> None:
    head = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, -9.0, -9.0]])
    values, v_boot = prefix_values(head, torch.tensor([4, 2]))
    assert torch.equal(values, torch.tensor([[0.0, 0.1, 0.2, 0.3], [0.0, 0.5, 0.6, -9.0]]))
    assert torch.equal(v_boot, torch.tensor([0.4, 0.6])), "value after the whole context"


def test_critic_gradient_reaches_the_state_before_the_action_and_no_other() -> None:
    # The action tokens are 2 and 3: their states are the hidden positions 1 and 2.
    head = torch.zeros(1, 5, requires_grad=True)
    values, _ = prefix_values(head, torch.tensor([5]))
    mask = torch.tensor([[0, 0, 1, 1, 0]])
    value_loss(values, torch.ones(1, 5), mask).loss.backward()
    assert head.grad.tolist() == [[0.0, -0.5, -0.5, 0.0, 0.0]]


def test_half_precision_logits_are_normalised_in_float32(logits) -> None:
    assert token_log_probs(logits.to(torch.bfloat16), IDS).dtype == torch.float32


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_temperature_that_has_no_distribution_is_refused(logits, temperature) -> None:
    with pytest.raises(ValueError, match="temperature must be > 0"):
        token_log_probs(logits, IDS, temperature=temperature)


def test_shapes_that_do_not_fit_are_refused(logits) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        token_log_probs(logits, IDS[:, :4])
    with pytest.raises(ValueError, match="row lengths"):
        prefix_values(logits[..., 0], torch.tensor([0, 5]))
