"""What a small causal model sees of observations: they are context, never targets."""

import pytest
import torch
from torch import Tensor, nn

from trainers.losses import policy_loss, value_loss
from trainers.token_outputs import prefix_values, token_log_probs

torch.set_num_threads(1)

VOCABULARY, WIDTH = 11, 16
#               prompt   action  observation  action
IDS = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9]])
MASK = torch.tensor([[0, 0, 1, 1, 0, 0, 0, 1, 1]])


class CausalModel(nn.Module):
    """One attention layer with a policy and a value head, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.logits = nn.Linear(WIDTH, VOCABULARY)
        self.value = nn.Linear(WIDTH, 1)
        self.double()

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(ids)
        future = torch.triu(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool), 1)
        h = x + self.attend(x, x, x, attn_mask=future, need_weights=False)[0]
        return self.logits(h), self.value(h).squeeze(-1)


@pytest.fixture
def model() -> CausalModel:
    torch.manual_seed(0)
    return CausalModel()


def outputs(model: CausalModel, ids: Tensor) -> tuple[Tensor, Tensor]:
    logits, head = model(ids)
    values, _ = prefix_values(head, torch.tensor([ids.shape[1]] * len(ids)))
    return token_log_probs(logits, ids), values


def test_observation_changes_what_follows_and_nothing_before(model) -> None:
    changed = IDS.clone()
    changed[0, 5] = 10
    with torch.no_grad():
        logp, values = outputs(model, IDS)
        logp_2, values_2 = outputs(model, changed)
    assert torch.equal(logp[0, :5], logp_2[0, :5])
    assert torch.equal(values[0, :6], values_2[0, :6])
    assert (logp[0, 7:] != logp_2[0, 7:]).all()
    assert (values[0, 7:] != values_2[0, 7:]).all()


def test_no_gradient_reaches_the_logits_of_observation_tokens(model) -> None:
    logits, _ = model(IDS)
    logits.retain_grad()
    logp = token_log_probs(logits, IDS)
    policy_loss(logp, logp.detach() - 0.1, torch.ones_like(logp), MASK).loss.backward()
    touched = (logits.grad.abs().sum(-1) > 0)[0].tolist()
    # Token t is predicted at t - 1: action tokens 2, 3, 7, 8.
    assert touched == [t + 1 in (2, 3, 7, 8) for t in range(9)]


def test_critic_trains_the_states_before_action_tokens(model) -> None:
    _, head = model(IDS)
    head.retain_grad()
    values, _ = prefix_values(head, torch.tensor([9]))
    value_loss(values, torch.ones_like(values), MASK).loss.backward()
    assert (head.grad[0] != 0).tolist() == [t + 1 in (2, 3, 7, 8) for t in range(9)]
    assert all(p.grad is not None for p in model.value.parameters())


def test_padding_changes_no_gradient(model) -> None:
    def gradients(ids: Tensor, mask: Tensor) -> list[Tensor]:
        model.zero_grad()
        logp, values = outputs(model, ids)
        loss = policy_loss(logp, logp.detach(), torch.ones_like(logp), mask).loss
        (loss + value_loss(values, torch.ones_like(values), mask).loss).backward()
        return [p.grad.clone() for p in model.parameters()]

    plain = gradients(IDS, MASK)
    padded = gradients(
        nn.functional.pad(IDS, (0, 4), value=0), nn.functional.pad(MASK, (0, 4), value=0)
    )
    for a, b in zip(plain, padded, strict=True):
        torch.testing.assert_close(a, b, atol=1e-14, rtol=1e-12)
