"""DAgger on GRID as one would write it in plain PyTorch: modules, an optimiser each, Python at every step.

The same model, updates and records as apil's: it starts from the same weights and takes the same random draws, so that
its losses must be those of apil's run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from apil.model.persona import PersonaModel
from apil.rng import Streams, race

SIZE = 5
HORIZON = 2 * (SIZE - 1)
RIGHT, DOWN = 0, 1
EMPTY, GOAL, AGENT = 0.0, 0.5, 1.0


class Grid:
    """One agent on its way from the top-left to the bottom-right cell."""

    def __init__(self) -> None:
        self.row = self.column = 0

    def features(self) -> Tensor:
        """[25]: the raw grid."""
        cells = [EMPTY] * (SIZE * SIZE)
        cells[-1] = GOAL
        cells[self.row * SIZE + self.column] = AGENT
        return torch.tensor(cells)

    def valid(self) -> list[int]:
        """The moves that stay inside the grid, in the order of the reference actions."""
        return [action for action, place in ((RIGHT, self.column), (DOWN, self.row)) if place < SIZE - 1]

    def step(self, action: int) -> None:
        """One cell right or down."""
        if action == RIGHT:
            self.column += 1
        else:
            self.row += 1


class Policy(nn.Module):
    """pi(a | s, h(k)), dropout on the input."""

    def __init__(self, teachers: int, persona: int, hidden: int) -> None:
        super().__init__()
        self.persona = nn.Embedding(teachers, persona)
        self.layers = nn.Sequential(nn.Linear(SIZE * SIZE + persona, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, features: Tensor, identity: Tensor, mask: Tensor, valid: Tensor) -> Tensor:
        """[..., 2] logits; `mask` is the dropout mask, -inf stands for moves that are not valid."""
        inputs = torch.cat([features, self.persona(identity)], dim=-1) * mask
        logits: Tensor = self.layers(inputs)
        return logits.masked_fill(~valid, -torch.inf)


@dataclass
class Totals:
    """What is logged: sums over the steps of training."""

    steps: int = 0
    labels: int = 0
    updates: int = 0
    uncertainty: Tensor | None = None
    """[5]: total, behavioral, intrinsic, extrinsic, model, in bits."""


class PlainDagger:
    """Trains one run, one episode an iteration."""

    def __init__(self, seed: int, initial: PersonaModel, learning_rate: float) -> None:
        """Starts from the weights of `initial`, a stack of one."""
        sizes = initial.sizes
        self.teachers, self.models, self.dropout = initial.teachers, sizes.models, sizes.dropout
        self.streams = Streams([seed])
        self.policy = Policy(initial.teachers, sizes.persona, sizes.hidden)
        self.identity = nn.Sequential(
            nn.Linear(SIZE * SIZE, sizes.hidden), nn.ReLU(), nn.Linear(sizes.hidden, initial.teachers)
        )
        self._start_from(initial)
        self.policy_optimiser = torch.optim.Adam(self.policy.parameters(), lr=learning_rate)
        self.identity_optimiser = torch.optim.Adam(self.identity.parameters(), lr=learning_rate)
        self.totals = Totals()

    def _start_from(self, initial: PersonaModel) -> None:
        weights, identity = initial.policy, initial.identity
        layers = {"0.weight": "w1", "0.bias": "b1", "2.weight": "w2", "2.bias": "b2"}
        self.policy.layers.load_state_dict({name: weights[own][0].t() for name, own in layers.items()})
        self.identity.load_state_dict({name: identity[own][0].t() for name, own in layers.items()})
        self.policy.persona.load_state_dict({"weight": weights["persona"][0]})

    def iteration(self, number: int) -> float:
        """One episode and one update; returns the policy loss."""
        width = SIZE * SIZE + self.policy.persona.embedding_dim
        draws = self.streams.draws("model", number)
        masks = draws.kept(self.dropout, self.models, width)[0]
        draws.uniform(HORIZON, 1)  # apil draws these for committees too large for the sum over all teachers
        arrival = draws.exponential(HORIZON, 1, 2)[0, :, 0]
        drawn = float(self.streams.draws("teacher", number).uniform(1, 1))
        teacher = min(int(drawn * self.teachers), self.teachers - 1)

        grid = Grid()
        features, valids, labels = [], [], []
        for t in range(HORIZON):
            seen = grid.features()
            moves = grid.valid()
            valid = torch.tensor([RIGHT in moves, DOWN in moves])
            with torch.no_grad():
                mean, uncertainty = self.belief(seen, valid, masks)
            features.append(seen)
            valids.append(valid)
            labels.append(moves[0] if teacher == 0 else moves[-1])
            self._log(uncertainty)
            grid.step(int(race(mean, arrival[t])))
        return self.update(torch.stack(features), torch.stack(valids), torch.tensor(labels), teacher, number)

    def belief(self, seen: Tensor, valid: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        """[2] the mean policy over N2 models and K teachers, and [5] the uncertainty of it."""
        rho = self.identity(seen).softmax(-1)
        everyone = torch.arange(self.teachers).expand(self.models, -1)
        states = seen.expand(self.models, self.teachers, -1)
        probs = self.policy(states, everyone, masks.unsqueeze(1), valid).softmax(-1)
        of_model = (rho.unsqueeze(-1) * probs).sum(1)
        mean = of_model.mean(0)
        total, behavioral = entropy(mean), entropy(of_model).mean()
        intrinsic = (rho * entropy(probs)).sum(1).mean()
        return mean, torch.stack([total, behavioral, intrinsic, behavioral - intrinsic, total - behavioral])

    def update(self, features: Tensor, valid: Tensor, labels: Tensor, teacher: int, number: int) -> float:
        """One step of each optimiser on the labels of the episode."""
        who = torch.full((HORIZON,), teacher)
        width = SIZE * SIZE + self.policy.persona.embedding_dim
        mask = self.streams.draws("dropout", number).kept(self.dropout, HORIZON, width)[0]
        policy_loss = functional.cross_entropy(self.policy(features, who, mask, valid), labels, reduction="sum")
        self.policy_optimiser.zero_grad()
        policy_loss.backward()  # type: ignore[no-untyped-call]
        self.policy_optimiser.step()
        identity_loss = functional.cross_entropy(self.identity(features), who, reduction="sum")
        self.identity_optimiser.zero_grad()
        identity_loss.backward()  # type: ignore[no-untyped-call]
        self.identity_optimiser.step()
        self.totals.updates += 1
        self.totals.labels += len(labels)
        return policy_loss.item()

    def _log(self, uncertainty: Tensor) -> None:
        totals = self.totals
        totals.steps += 1
        totals.uncertainty = uncertainty if totals.uncertainty is None else totals.uncertainty + uncertainty


def entropy(probs: Tensor) -> Tensor:
    """In bits, of the last axis."""
    nats: Tensor = torch.special.entr(probs).sum(-1)
    return nats / math.log(2.0)
