"""A query rule of your own in one file: asks where it matters who is teaching, and the agent cannot tell.

APIL_PLUGINS=examples/own_rule.py apil train --task maze --query part --budget 0.1 --out runs/part
"""

from torch import Tensor

import apil
from apil.query.scored import scored
from apil.types import Belief


def part(belief: Belief) -> Tensor:
    """Asks where who is teaching matters: uncertain about both the action and the teacher."""
    unsure_of_teacher = 1.0 - belief.identity.amax(-1)
    return unsure_of_teacher * belief.uncertainty.extrinsic


apil.register_query_policy("part", scored(part))

if __name__ == "__main__":
    apil.check_query_policy("part", budget=0.1)
    print("The rule is sound.")
