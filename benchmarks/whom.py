"""What choosing whom to ask costs: time for a decision, answers with equal teachers, and a teacher who turns bad.

    python benchmarks/whom.py                  # writes benchmarks/results/whom.json
    python benchmarks/whom.py --only time

- time: processor time of a decision of `learned`, opening a batch of episodes included, with 10 to 10,000 teachers.
- equal: success alone on MAZE after the same answers, with five equal teachers, by `environment` and by `learned`, both
  acting as answered, and by `learned` acting by skill.
- turned: three equal teachers, one of whom turns adversarial half-way, beside runs in which he leaves at that moment;
  in how many runs that was noticed, how many answers he gave, and who else was taken for one who has turned.
- signal: how well the progress of right and of wrong answers can be kept apart, with and without the ends of episodes;
  MAZE with the teachers of examples/whom, asked in turn, on walls and seeds for choosing.
- alarms: how often a teacher who stays as he is gives an alarm, on made-up progress, tested at every answer.
"""

from __future__ import annotations

import argparse
import json
import runpy
import time
from pathlib import Path
from typing import Any

import torch

import apil
from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.rng import Streams
from apil.runs.calibration import load_calibration
from apil.runs.resolve import resolve
from apil.select.learned import learned
from apil.select.protocol import SelectSetup
from apil.select.skill import Fit, turning_point
from apil.studies.statistics import interval
from apil.teachers import Drift, Member, Team
from apil.teachers.policies import Question, Reply
from apil.types import Observation

OUT = Path(__file__).parent / "results" / "whom.json"
FEATURES, EPISODES, HORIZON = 30, 4, 20
HALF = 60
"""The iteration at which a teacher turns or leaves; about half of the answers are given by then."""


class Adversary:
    """Takes the first move that leads nowhere better, wherever there is one."""

    batched = True

    def reply(self, question: Question) -> Reply:
        reference, valid = question.reference, question.observation.valid
        listed = torch.arange(valid.shape[-1]) < reference.count.unsqueeze(-1)
        bad = valid & ~torch.zeros_like(valid).scatter(-1, reference.actions, listed)
        return Reply(torch.where(bad.any(-1), bad.long().argmax(-1), reference.actions[..., 0]), question.who)


def turning() -> Team:
    """Three who are right; the last turns."""
    return Team([Member("ann", "first"), Member("bob", "first"), Member("cat", Drift("first", Adversary(), HALF))])


def leaving() -> Team:
    """The same; the last leaves."""
    away = Member("cat", "first", available=lambda iteration: float(iteration < HALF))
    return Team([Member("ann", "first"), Member("bob", "first"), away])


def equals() -> Team:
    """Five who are right."""
    return Team([Member(name, "first") for name in ("ann", "bob", "cat", "dan", "eve")])


def seconds(teachers: int) -> float:
    """Processor time of a decision."""
    setup = SelectSetup(Streams([0]), teachers, torch.ones(1, teachers), torch.zeros(1), FEATURES, 4, HORIZON)
    selector = learned(setup)
    draws = Streams([0]).draws("made", 0)
    memory = selector.memory
    memory["before"].copy_(draws.uniform(256, FEATURES))
    memory["after"].copy_(draws.uniform(256, FEATURES))
    memory["teacher"].copy_((draws.uniform(256) * teachers).long())
    memory["distance"].copy_(10 * draws.uniform(256))
    memory["reached"].copy_(10 * draws.uniform(256))
    memory["count"].fill_(256)
    memory["answers"].copy_(memory["teacher"][0].bincount(minlength=teachers).unsqueeze(0))
    present, put = torch.ones(1, EPISODES, teachers) > 0, torch.ones(1, EPISODES) > 0
    seen = Observation(draws.uniform(EPISODES, FEATURES), torch.ones(1, EPISODES, 4) > 0)
    selector.begin(Streams([0]).draws("select", 0), EPISODES, HORIZON).choose(seen, present, put, 0)  # fits
    best = float("inf")
    for batch in range(30):
        start = time.process_time()
        session = selector.begin(Streams([0]).draws("select", batch), EPISODES, HORIZON)
        for t in range(HORIZON):
            session.choose(seen, present, put, t)
        best = min(best, (time.process_time() - start) / HORIZON)
    return best


def success(teacher: str, seeds: range, answers: int, **settings: Any) -> tuple[list[float], Trainer]:
    """Success alone of each seed, at the end."""
    given = {"answer_budget": answers, "options": {"wall_seed": 21}, **settings}
    runs = [resolve("maze", teacher, "random", {**given, "seed": s}, load_calibration(None)).settings for s in seeds]
    trainer = Trainer(runs)
    trainer.train()
    found = evaluate(trainer.trained_agents(), 300, helped=False)
    return [own["success_alone"] for own in found], trainer


def alarms(steady: int = 500, answers: int = 130) -> dict[str, float]:
    """The share of teachers who give an alarm, by what their progress is like."""
    draws = Streams([0]).draws("steady", 0)
    luck, normal = draws.uniform(steady, answers)[0], draws.normal(steady, answers)[0]
    kinds = {
        "right, measured badly": 0.9 + 0.6 * normal,
        "right seven times in ten": torch.where(luck < 0.7, 1.0, -1.0) + 0.5 * normal,
        "right but for one in twelve": torch.where(luck < 1 / 12, -1.2, 1.0) + 0.3 * normal,
    }
    found = {}
    for name, progress in kinds.items():
        rows = progress.clamp(-1.5, 1.5)
        found[name] = (
            sum(any(turning_point(row[:n]) is not None for n in range(12, answers + 1)) for row in rows) / steady
        )
    return found


def signal(counts: tuple[int, ...] = (40, 80, 150), seeds: range = range(900, 904)) -> dict[str, dict[str, float]]:
    """The probability that a right answer has more progress than a wrong one, as estimated after so many answers."""
    wings = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "whom" / "maze_wings.py"))
    given = {"answer_budget": counts[-1], "options": {"wall_seed": 42}, "select": "round-robin", "acting": "by-skill"}
    runs = [resolve("maze", "wings", "random", {**given, "seed": s}, load_calibration(None)).settings for s in seeds]
    trainer, found = Trainer(runs), {}
    memory = trainer.agents.selectors[0].part.memory
    for count in counts:
        while int(memory["count"].min()) < count:
            trainer.step()
        areas: dict[str, list[float]] = {"with_ends": [], "without": []}
        for run in range(len(runs)):
            own = {name: value[run].clone() for name, value in memory.items()}
            for values in areas.values():
                values.append(_area(Fit.of(own), own, wings["SIZE"]))
                own["ends"].zero_()
        found[str(count)] = {name: sum(values) / len(values) for name, values in areas.items()}
    trainer.close()
    return found


def _area(fit: Fit, memory: dict[str, torch.Tensor], size: int) -> float:
    """Of the careful one, who is always right, and the eastern one, who is so in the east alone."""
    cell = memory["before"][fit.places][:, : size * size].argmax(-1)
    row, column = cell // size, cell % size
    east = (column > size // 2) | ((column == size // 2) & (row > size // 2))
    right, wrong = (fit.teacher == 0) | ((fit.teacher == 2) & east), (fit.teacher == 2) & ~east
    return float((fit.progress[right].unsqueeze(1) > fit.progress[wrong]).double().mean())


def noticed(trainer: Trainer, who: int) -> dict[str, Any]:
    """In how many runs a teacher was found to have turned, how many answers he gave in all, and in how many runs
    somebody else was."""
    memory = trainer.agents.selectors[0].part.memory
    turns = memory["turns"] > 0
    others = turns.clone()
    others[:, who] = False
    return {
        "noticed": int(turns[:, who].sum()),
        "answers_of_his": memory["answers"][:, who].tolist(),
        "others_taken_for_bad": int(others.any(1).sum()),
        "seeds": len(turns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("time", "equal", "turned", "signal", "alarms"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed; 900 and up are for choosing")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    seeds, ours = range(wanted.first, wanted.first + wanted.seeds), {"select": "learned", "acting": "by-skill"}
    for name, made in (("turning", turning), ("leaving", leaving), ("equals", equals)):
        apil.register_teacher(name, made)
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    if wanted.only in (None, "time"):
        found["seconds"] = {str(teachers): seconds(teachers) for teachers in (10, 100, 1_000, 10_000)}
    if wanted.only in (None, "equal"):
        plain = success("equals", seeds, 300)[0]
        chosen, trainer = success("equals", seeds, 300, select="learned")
        acting = success("equals", seeds, 300, **ours)[0]
        gaps = [[a - b for a, b in zip(own, plain, strict=True)] for own in (chosen, acting)]
        found["equal"] = {
            "environment": interval(plain),
            "learned": interval(chosen),
            "difference": interval(gaps[0]),
            "learned_by_skill": interval(acting),
            "difference_by_skill": interval(gaps[1]),
            "runs_with_a_false_alarm": int((trainer.agents.selectors[0].part.memory["turns"] > 0).any(1).sum()),
            "seeds": list(seeds),
        }
        OUT.write_text(json.dumps(found, indent=2) + "\n")
    if wanted.only in (None, "turned"):
        (turned, trainer), (left, _) = (success(name, seeds, 300, **ours) for name in ("turning", "leaving"))
        gap = [a - b for a, b in zip(turned, left, strict=True)]
        plain = success("turning", seeds, 300)[0]
        found["turned"] = {
            "learned": interval(turned),
            "leaves": interval(left),
            "difference": interval(gap),
            "environment": interval(plain),
            **noticed(trainer, 2),
            "of_seeds": list(seeds),
        }
    if wanted.only in (None, "signal"):
        found["signal"] = signal()
    if wanted.only in (None, "alarms"):
        found["alarms"] = alarms()
    print(json.dumps(found, indent=2))
    OUT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
