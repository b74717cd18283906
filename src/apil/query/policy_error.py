"""How far the mean policy was from the teacher's answer."""

from __future__ import annotations

from torch import Tensor

from apil.types import ActionBox, Episodes


def policy_error(episodes: Episodes, box: ActionBox | None) -> Tensor:
    """[runs, episodes, T], from 0 to 1; means something at answered steps only.

    Discrete actions: 1 - pi(a* | s). Continuous ones: the squared distance between the mean action, clipped to the box,
    and the answer, as a share of the action range in each number, averaged over the n numbers.
    """
    if box is None:
        return 1.0 - episodes.mean.gather(-1, episodes.action.unsqueeze(-1)).squeeze(-1)
    mean = episodes.mean[..., : episodes.action.shape[-1]].clamp(-1.0, 1.0)
    return ((mean - box.scaled(episodes.action)) / 2.0).square().mean(-1)
