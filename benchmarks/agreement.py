"""Accuracy of teachers from agreement alone: ours beside crowd-kit, against the truth.

    python benchmarks/agreement.py     # writes benchmarks/results/agreement.json

crowd-kit brings transformers, scikit-learn and nltk with it, so it is not among the dependencies: install it into an
environment of its own with `pip install -c constraints.txt crowd-kit`. Without it ours is compared with the truth
alone. Teachers are right in a share of the states and give any other action elsewhere; each answers in a share of them.
"""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from apil.runs.consensus import accuracies, of_several

OUT = Path(__file__).parent / "results" / "agreement.json"
RIGHT = (1.0, 0.7, 0.5, 0.9)
STATES, ACTIONS = (30, 100, 300, 1000), 4
SEEDS = range(20)


def theirs(states: Any, who: Any, actions: Any) -> list[float] | None:
    """The same by crowd-kit; None where it is not installed."""
    if find_spec("crowdkit") is None:
        return None
    pandas, peer = import_module("pandas"), import_module("crowdkit.aggregation")
    table = pandas.DataFrame({"task": states, "worker": who, "label": actions})
    return [float(value) for value in peer.OneCoinDawidSkene(n_iter=200).fit(table).skills_.loc[range(len(RIGHT))]]


def answers(count: int, seed: int) -> tuple[Any, Any, Any]:
    """Of all teachers; each answers in six states of ten."""
    rng = np.random.default_rng(seed)
    truth, shape = rng.integers(ACTIONS, size=count), (len(RIGHT), count)
    wrong = (truth + rng.integers(1, ACTIONS, size=shape)) % ACTIONS
    action = np.where(rng.random(shape) < np.array(RIGHT)[:, None], truth, wrong)
    there = rng.random(shape) < 0.6
    who, states = there.nonzero()
    several = of_several(states, who)
    return states[several], who[several], action[there][several]


def main() -> None:
    found = []
    for count in STATES:
        ours, other, apart = [], [], []
        for seed in SEEDS:
            made = answers(count, seed)
            mine, peer = accuracies(*made, len(RIGHT)), theirs(*made)
            ours.append(float(np.abs(mine - RIGHT).mean()))
            if peer is not None:
                other.append(float(np.abs(np.array(peer) - RIGHT).mean()))
                apart.append(float(np.abs(mine - peer).max()))
        row: dict[str, float] = {"states": count, "mean_error": float(np.mean(ours))}
        if other:
            row |= {"mean_error_of_crowd_kit": float(np.mean(other)), "largest_difference": float(np.max(apart))}
        print(row, flush=True)
        found.append(row)
    about = {"right": RIGHT, "actions": ACTIONS, "seeds": len(SEEDS), "share_of_states": 0.6}
    OUT.write_text(json.dumps({"about": about, "rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
