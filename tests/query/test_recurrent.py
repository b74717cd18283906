"""The query network that remembers the steps of an episode."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.query.network import RecurrentNetwork
from apil.query.protocol import QuerySetup
from apil.rng import Streams
from apil.types import Belief, Episodes, Uncertainty

RUNS, BATCH, HORIZON, STATE, ACTIONS, HIDDEN = 2, 5, 7, 6, 4, 8


def _network() -> RecurrentNetwork:
    setup = QuerySetup(
        Streams([4, 5]), STATE, ACTIONS, HORIZON, torch.full((RUNS,), torch.nan), hidden=HIDDEN, recurrent=True
    )
    return RecurrentNetwork(setup, "ask")


def _inputs() -> tuple[Tensor, Tensor]:
    """States and mean policies of a batch of episodes."""
    draws = torch.Generator().manual_seed(0)
    state = torch.randn(RUNS, BATCH, HORIZON, STATE, generator=draws)
    return state, torch.rand(RUNS, BATCH, HORIZON, ACTIONS, generator=draws).softmax(-1)


def _episodes(state: Tensor, mean: Tensor) -> Episodes:
    """Of which the network reads states and policies."""
    flat = torch.zeros(RUNS, BATCH, HORIZON)
    no = flat.bool()
    return Episodes(
        features=state, state=state, valid_actions=torch.ones_like(mean).bool(), mean=mean, identity_belief=mean,
        answered=no, unanswered=no, action=flat.long(), distance=flat, identity=flat.long(), taken=flat.long(),
        live=~no, final_distance=flat[..., 0], success=no[..., 0], uncertainty=Uncertainty(*[flat] * 5),
        notes=state[..., :0],
    )  # fmt: skip


def test_step_by_step_it_decides_as_over_whole_episodes() -> None:
    network = _network()
    state, mean = _inputs()
    whole = network.over_episodes(_episodes(state, mean))
    session = network.begin(BATCH)
    flat = torch.zeros(RUNS, BATCH)
    uncertainty = Uncertainty(flat, flat, flat, flat, flat)
    for t in range(HORIZON):
        belief = Belief(state[:, :, t], mean[:, :, t], mean[:, :, t], uncertainty, HORIZON - t)
        torch.testing.assert_close(session(belief), whole[:, :, t], atol=1e-6, rtol=0)
    # It remembers: without the first step the later logits are others.
    without = torch.cat([torch.zeros_like(state[:, :, :1]), state[:, :, 1:]], 2)
    assert not torch.allclose(network.over_episodes(_episodes(without, mean))[:, :, -1], whole[:, :, -1], atol=1e-6)


def test_it_is_the_lstm_of_torch() -> None:
    network = _network()
    state, mean = _inputs()
    found = network.over_episodes(_episodes(state, mean))

    def ordered(rows: Tensor) -> Tensor:
        """Gates as torch orders them, input, forget, cell, output; here they stand as forget, input, output, cell."""
        forget, write, show, cell = rows.chunk(4)
        return torch.cat([write, forget, cell, show])

    for run in range(RUNS):
        own = {name: value[run] for name, value in network.parameters.items()}
        lstm = torch.nn.LSTM(STATE + ACTIONS + own["time"].shape[-1], HIDDEN, batch_first=True)
        lstm.load_state_dict(
            {
                "weight_ih_l0": ordered(own["wx"].T),
                "weight_hh_l0": ordered(own["wh"].T),
                "bias_ih_l0": ordered(own["b"]),
                "bias_hh_l0": torch.zeros(4 * HIDDEN),
            }
        )
        # Step t has horizon - t steps left.
        left = own["time"][[HORIZON - t for t in range(HORIZON)]].expand(BATCH, -1, -1)
        with torch.no_grad():
            hidden, _ = lstm(torch.cat([state[run], mean[run], left], -1))
        torch.testing.assert_close(hidden @ own["wo"] + own["bo"], found[run], atol=1e-5, rtol=0)
