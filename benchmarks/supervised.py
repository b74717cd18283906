"""A yardstick: plain supervised learning from a set of answers, in ordinary PyTorch, without apil's learning code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

BATCH, LOOK, LOOKS, GAIN = 256, 200, 25, 0.01
"""Training stops after a look (200 updates) that lowered the loss by less than 1 %, or after 25 looks."""


def network(shape: tuple[int, ...], actions: int) -> nn.Module:
    """Two hidden layers of 256; for images [channels, height, width] a small CNN in front."""
    front: list[nn.Module] = [nn.Flatten()]
    size = int(np.prod(shape))
    if len(shape) == 3:
        front = [nn.Conv2d(shape[0], 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), *front]
        size = 32 * shape[1] * shape[2]
    hidden = (nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    return nn.Sequential(*front, *hidden, nn.Linear(256, actions))


def learn(
    observations: NDArray[np.float32], answers: NDArray[np.int64], actions: int, seed: int
) -> Callable[[NDArray[np.float32]], Any]:
    """The greedy policy that is learned from answers [n] to observations [n, ...]: from a batch to its actions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inputs, targets = torch.from_numpy(observations), torch.from_numpy(answers)
        mean, deviation = inputs.mean(0), inputs.std(0).clamp(min=1e-3)
        policy = network(inputs.shape[1:], actions)
        optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
        lowest = float("inf")
        for _ in range(LOOKS):
            total = 0.0
            for _ in range(LOOK):
                batch = torch.randint(len(inputs), (BATCH,))
                loss = nn.functional.cross_entropy(policy((inputs[batch] - mean) / deviation), targets[batch])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += float(loss.detach())
            if total > (1 - GAIN) * lowest:
                break
            lowest = total

    def act(batch: NDArray[np.float32]) -> Any:
        with torch.inference_mode():
            scores: Tensor = policy((torch.from_numpy(batch) - mean) / deviation)
        return scores.argmax(-1).numpy()

    return act
