from __future__ import annotations

import torch

from apil.query.errpred import policy_error
from apil.types import ActionBox, Episodes, Uncertainty


def _episodes(mean: torch.Tensor, action: torch.Tensor) -> Episodes:
    shape = mean.shape[:3]
    nothing, whole, answered = torch.zeros(shape), torch.zeros(shape).long(), torch.ones(shape, dtype=torch.bool)
    return Episodes(
        features=nothing, state=nothing, valid_actions=answered, answered=answered, action=action, distance=nothing,
        identity=whole, live=answered, mean=mean, identity_belief=nothing, unanswered=~answered, taken=action,
        final_distance=nothing[..., 0], success=answered[..., 0], uncertainty=Uncertainty(*[nothing] * 5),
        notes=mean[..., :0],
    )  # fmt: skip


def test_of_discrete_actions_it_is_the_chance_of_another_action() -> None:
    mean = torch.tensor([[[[0.2, 0.8], [0.5, 0.5]]]])
    torch.testing.assert_close(
        policy_error(_episodes(mean, torch.tensor([[[0, 1]]])), None), torch.tensor([[[0.8, 0.5]]])
    )


def test_of_continuous_actions_it_is_the_squared_share_of_the_range() -> None:
    box = ActionBox(torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 10.0]))
    # Mean actions (0, 5) and, beyond the box, (2, 10); the last two numbers are deviations.
    mean = torch.tensor([[[[0.0, 0.0, 9.0, 9.0], [3.0, 1.0, 9.0, 9.0]]]])
    action = torch.tensor([[[[1.0, 10.0], [-2.0, 0.0]]]])
    expected = torch.tensor([[[((1 / 4) ** 2 + (5 / 10) ** 2) / 2, 1.0]]])
    torch.testing.assert_close(policy_error(_episodes(mean, action), box), expected)
