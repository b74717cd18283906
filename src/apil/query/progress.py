"""APIL: asks where it predicts no progress (Alg 2 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.query.gates import Budget, Sampled
from apil.query.network import NetworkScore
from apil.query.protocol import QueryLoss, QuerySetup, over_steps
from apil.query.scored import ScoredPolicy
from apil.types import Episodes


def reference_queries(
    answered: Tensor,
    distance: Tensor,
    final_distance: Tensor,
    *,
    sigma: float,
    epsilon: float,
    valid: Tensor | None = None,
    missing: bool = False,
) -> Tensor:
    """Alg 2's labelling: true where the reference action of the query policy is *query*.

    A step t makes progress if the episode ends within `epsilon` of the goal, or if some answered step i >= t has a
    distance of at least `sigma` times a later known one: that of an answered step j > i, or the final distance. The
    reference action is *query* where there is no progress.

    Args:
        answered: `[episodes, T]` bool.
        distance: `[episodes, T]` float; read only where answered, elsewhere it may be NaN.
        final_distance: `[episodes]` float, d_T.
        sigma: above 1.
        epsilon: not negative.
        valid: `[episodes, T]` bool; false after the end of an episode. Such steps count as unanswered and give false.
        missing: NaN may stand for a distance that was not reported; it then proves nothing, neither shrinking nor
            a good end. Otherwise NaN where a distance is due is refused.

    Returns:
        `[episodes, T]` bool.
    """
    if answered.dim() != 2 or distance.shape != answered.shape or final_distance.shape != answered.shape[:1]:
        raise ApilError(
            f"answered {list(answered.shape)}, distance {list(distance.shape)} and final_distance "
            f"{list(final_distance.shape)} do not fit: expected [episodes, T], [episodes, T], [episodes]."
        )
    if valid is not None and valid.shape != answered.shape:
        raise ApilError(f"valid has shape {list(valid.shape)}; expected that of answered, {list(answered.shape)}.")
    if not sigma > 1:
        raise ApilError(f"sigma is {sigma:g}: progress needs a factor above 1.")
    if not epsilon >= 0:
        raise ApilError(f"epsilon is {epsilon:g}: a distance is not negative, use 0 or more.")
    answered = answered if valid is None else answered & valid
    end_known = torch.ones_like(final_distance, dtype=torch.bool)
    if missing:
        answered = answered & ~distance.isnan()
        end_known = ~final_distance.isnan()
        final_distance = torch.where(end_known, final_distance, torch.inf)
    known = torch.where(answered, distance, torch.inf)
    if bool(known.isnan().any()) or bool(final_distance.isnan().any()):
        raise ApilError("A distance is NaN where a teacher answered, or at the end: teachers must report it there.")
    # later[:, t] = the least known distance after step t, the final one included.
    after = torch.cat([known, final_distance.unsqueeze(1)], dim=1)[:, 1:]
    later = after.flip(1).cummin(1).values.flip(1)
    # Where the end was not reported there may be no later distance at all, and nothing to compare with.
    some_later = torch.cat([answered, end_known.unsqueeze(1)], dim=1)[:, 1:].flip(1).cummax(1).values.flip(1)
    shrinks = answered & some_later & (known >= sigma * later)
    ahead = shrinks.flip(1).cummax(1).values.flip(1)
    no_progress = ~(ahead | (final_distance <= epsilon).unsqueeze(1))
    return no_progress if valid is None else no_progress & valid


def apil(setup: QuerySetup) -> ScoredPolicy:
    """APIL of the paper: its query action is sampled; with a budget, it asks where *query* is most probable."""
    return ScoredPolicy(ProgressPrediction(setup), Sampled() if setup.budgets is None else Budget(setup.budgets))


class ProgressPrediction(NetworkScore):
    """Imitates the combined query teacher of the paper: *query* where there was no progress, else *continue*.

    The score is the probability of *query*; its loss is taken at every step, answered or not.
    """

    def __init__(self, setup: QuerySetup) -> None:
        super().__init__(setup, "apil")
        if setup.gap == "estimate":
            runs = len(setup.streams.seeds)
            self.memory = {name: torch.zeros(runs, dtype=torch.float64) for name in ("followed", "distance")}

    def observe(self, episodes: Episodes) -> None:
        """Adds up the final distances of episodes in which the teachers were followed at every step."""
        if self._setup.gap == "estimate":
            followed = (episodes.answered | ~episodes.live).all(-1) & ~episodes.final_distance.isnan()
            self.memory["followed"] += followed.sum(-1)
            self.memory["distance"] += torch.where(followed, episodes.final_distance, 0.0).double().sum(-1)

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Negative log-likelihood of the reference query actions, summed over steps, averaged over episodes.

        Logs the two terms of the paper's query objective, as fractions of the steps: `query_on_progress`, the
        probability of asking in a state with progress, and `no_progress`, that of being in a state without.
        """
        runs, batch, horizon = episodes.answered.shape
        gap = self._gap(runs)[:, None, None]
        reference = reference_queries(
            episodes.answered.flatten(0, 1),
            (episodes.distance - gap).clamp_min(0.0).flatten(0, 1),
            (episodes.final_distance - gap[:, 0]).clamp_min(0.0).flatten(),
            sigma=self._setup.sigma,
            epsilon=self._setup.epsilon,
            valid=episodes.live.flatten(0, 1),
            missing=True,  # the guard has let NaN pass only from teachers that may leave a distance out
        ).view(runs, batch, horizon)
        logits = self._network.over_episodes(episodes)
        likelihood = logits.log_softmax(-1).gather(-1, reference.long().unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            steps = episodes.live.sum((1, 2))
            wasted = torch.where(episodes.live & ~reference, logits.softmax(-1)[..., 1], 0.0)
            logs = {"query_on_progress": wasted.sum((1, 2)) / steps, "no_progress": reference.sum((1, 2)) / steps}
        return QueryLoss(-over_steps(likelihood, episodes.live), torch.ones(runs, dtype=torch.bool), logs)

    def _gap(self, runs: int) -> Tensor:
        """[runs] d*_T: the number that was set, or the mean final distance of all episodes so far in which the teachers
        were followed at every step (0 before the first).
        """
        if self._setup.gap != "estimate":
            return torch.full((runs,), self._setup.gap)
        return (self.memory["distance"] / self.memory["followed"].clamp_min(1.0)).float()
