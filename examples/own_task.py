"""A task that is more than a vector, brought from outside: a T-maze, in which an agent has to remember a sign.

APIL_PLUGINS=examples/own_task.py apil train --task t-maze --length 8 --out runs/t-maze
APIL_PLUGINS=examples/own_task.py apil evaluate runs/t-maze --episodes 500
APIL_PLUGINS=examples/own_task.py apil study t-maze --out runs/study/t-maze
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

import apil
from apil.learning.collect import Step, collect
from apil.model.persona import PersonaModel
from apil.model.protocol import ActingModel
from apil.rng import Draws, Streams
from apil.runs.evaluation import Measured, Progress
from apil.runs.folder import load_run
from apil.settings import RunSettings
from apil.settings.record import Count, Option, Says, record
from apil.studies.extras import Extras
from apil.studies.kind import PlainStudy
from apil.studies.records import CellResult, StudyRecords
from apil.studies.statistics import Estimate
from apil.studies.tables import Table, TableBlock, shown
from apil.tasks.options import Resolved
from apil.types import ActionBox, Belief, Lessons, Observation, Picture, Reference

# The task.

STEP, JUMP, UP, DOWN = range(4)


@dataclass(frozen=True)
class TMazeState:
    """Where the agents are, each [runs, episodes]."""

    place: Tensor
    """long: the cell of the corridor, from 0; its last one is the junction."""
    turned: Tensor
    """long: 0 in the corridor, 1 after the turn up, -1 after the turn down."""
    sign: Tensor
    """long: 1 if the goal is up, -1 if it is down."""
    begun: Tensor
    """bool: the first step is behind it."""


class TMaze:
    """A corridor with a sign at its start, and a turn at its end that is right or wrong; failure is possible."""

    name = "t-maze"
    batch = 16
    success_distance = 0.0
    actions = 4
    action_names: tuple[str, ...] = ("step", "jump", "up", "down")
    box: ActionBox | None = None
    encoder: Callable[[], nn.Module] | None = None

    def __init__(self, length: int, sign: str) -> None:
        self.length, self.horizon = length, length + 1
        self._always = sign == "always"
        self.state_size = length + 2

    def reset(self, draws: Draws, episodes: int) -> TMazeState:
        """At the start, with a goal on either side."""
        sign = torch.where(draws.uniform(episodes) < 0.5, 1, -1)
        none = torch.zeros_like(sign)
        return TMazeState(none, none, sign, none.bool())

    def observe(self, state: TMazeState) -> Observation:
        """The place, and the sign if it is shown; only a turn is possible at the junction, and none before."""
        shown = (~state.begun | self._always).unsqueeze(-1)
        sign = torch.stack([state.sign == 1, state.sign == -1], -1) & shown
        place = nn.functional.one_hot(state.place, self.length)
        left = self.length - 1 - state.place
        valid = torch.stack([left >= 1, left >= 2, left == 0, left == 0], -1)
        return Observation(torch.cat([place, sign], -1).float(), valid)

    def reference(self, state: TMazeState) -> Reference:
        """In the corridor a step, then a jump of two cells if there is room for one; at its end the right turn."""
        left = self.length - 1 - state.place
        turn = torch.where(state.sign == 1, UP, DOWN)
        first = torch.where(left == 0, turn, STEP)
        actions = torch.stack([first, torch.full_like(first, JUMP), first, first], -1)
        return Reference(actions, torch.where(left >= 2, 2, 1), self.distance(state))

    def step(self, state: TMazeState, action: Tensor) -> TMazeState:
        """A turn ends the episode."""
        over = self.done(state)
        moved = state.place + torch.where(action == STEP, 1, torch.where(action == JUMP, 2, 0))
        turned = torch.where(action == UP, 1, torch.where(action == DOWN, -1, 0))
        return TMazeState(
            torch.where(over, state.place, moved),
            torch.where(over, state.turned, turned),
            state.sign,
            torch.ones_like(over),
        )

    def distance(self, state: TMazeState) -> Tensor:
        """Steps to the goal; two from the wrong end."""
        ahead = self.length - state.place
        return torch.where(state.turned == 0, ahead, torch.where(state.turned == state.sign, 0, 2)).float()

    def done(self, state: TMazeState) -> Tensor:
        """After a turn."""
        return state.turned != 0

    def describe(self, state: TMazeState, run: int, episode: int) -> str:
        """The cell, and the side of the goal."""
        side = "up" if int(state.sign[run, episode]) == 1 else "down"
        return f"cell {int(state.place[run, episode])} of {self.length}, goal {side}"

    def picture(self, state: TMazeState, run: int, episode: int) -> Picture:
        """Three rows; the corridor is the middle one."""
        rows = [["#"] * (self.length - 1) + [end] for end in ".."]
        rows.insert(1, ["."] * self.length)
        rows[1 - int(state.sign[run, episode])][-1] = "G"
        turned = int(state.turned[run, episode])
        rows[1 - turned][int(state.place[run, episode])] = "A"
        return Picture(tuple("".join(row) for row in rows))

    def contested(self) -> Observation:
        """The two first states, where one can step or jump."""
        sign = torch.tensor([[1, -1]])
        none = torch.zeros_like(sign)
        return self.observe(TMazeState(none, none, sign, none.bool()))


# The facet `options`: what can be set.


@record
class TMazeArguments:
    """Of the T-maze."""

    length: Annotated[int, Ge(3), Le(50), Says("give a whole number from 3 to 50")] = 6
    """Cells of the corridor."""
    sign: Literal["start", "always"] = "start"
    """When the sign is seen: at the first step alone, or at all of them."""


class TMazeOptions:
    """Everything is saved with a run, and a run is short unless it is set otherwise."""

    arguments: type = TMazeArguments
    places: tuple[str, ...] = ()
    """None of the options names a file."""

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """Fills in what is open; `apil train --iterations N` goes before the 300 of here."""
        wanted = TMazeArguments(**given)
        notice = "The sign is always seen: no memory is needed." if wanted.sign == "always" else ""
        settings = {"iterations": 300, "learning_rate": 3e-3, "hidden": 64}
        return Resolved({"length": wanted.length, "sign": wanted.sign}, settings, notice)

    def identity(self, options: Mapping[str, Option]) -> Mapping[str, Option]:
        """All of them: there are no data on a disk."""
        return options

    def make(self, options: Mapping[str, Option]) -> TMaze:
        """The task."""
        wanted = TMazeArguments(**options)  # type: ignore[arg-type]  # checked there
        return TMaze(wanted.length, wanted.sign)


# The facet `model`: the paper's, on what is seen now and what was seen at first.


class Remembering:
    """Gives the sign to the paper's model at every step."""

    recurrent = True
    stackable = True

    def __init__(self, streams: Streams, task: TMaze, settings: Sequence[RunSettings], teachers: int) -> None:
        self.state_size, self.teachers = 2 * task.state_size, teachers
        self._model = PersonaModel(
            streams,
            state_size=self.state_size,
            actions=task.actions,
            teachers=teachers,
            samples=[run.model.drawn for run in settings],
            sizes=settings[0].model,
        )
        self.policy, self.identity, self.memory = self._model.policy, self._model.identity, self._model.memory

    def begin(self, draws: Draws, sample_draws: Draws, episodes: int, horizon: int) -> ActingModel:
        """Models with an empty memory."""
        return FromTheStart(self._model.begin(draws, sample_draws, episodes, horizon))

    def policies(self, observation: Observation) -> Tensor:
        """In first states: what is seen at first is what is seen now."""
        return self._model.policies(_beside(observation, observation.features))

    def observe(self, lessons: Lessons) -> None:
        """Remembers nothing."""

    def losses(self, lessons: Lessons, draws: Draws) -> tuple[Tensor, Tensor]:
        """Those of the paper's model, at all steps of whole episodes at once."""
        first = lessons.features[:, :, :1].expand_as(lessons.features)
        return self._model.losses(replace(lessons, features=torch.cat([lessons.features, first], -1)), draws)


class FromTheStart:
    """The models of one batch of episodes."""

    def __init__(self, model: ActingModel) -> None:
        self._model = model
        self._first: Tensor | None = None

    def belief(self, observation: Observation, t: int, horizon: int) -> Belief:
        """Remembers the first observation."""
        self._first = observation.features if self._first is None else self._first
        return self._model.belief(_beside(observation, self._first), t, horizon)


def _beside(observation: Observation, first: Tensor) -> Observation:
    return Observation(torch.cat([observation.features, first], -1), observation.valid)


# The facet `evaluation`: how a trained agent is measured.


@record
class TMazeMeasures:
    """Options of an evaluation."""

    episodes: Count = 500
    """How many, all of them alone."""
    sample: bool = False
    """Sample actions, instead of taking the likeliest."""


class TMazeEvaluation:
    """Success by side: an agent that always turns up has 1 and 0."""

    arguments: type = TMazeMeasures

    def measure(self, folder: Path, given: Mapping[str, Any], progress: Progress) -> Measured:
        """Measures the agent of a run folder."""
        wanted = TMazeMeasures(**given)
        _, agents = load_run(folder)
        up: list[Tensor] = []

        def watch(state: TMazeState, step: Step) -> None:
            up.append(state.sign[0] == 1)

        walked = collect(agents, 0, wanted.episodes, "alone", "t-maze/", watch=watch, greedy=not wanted.sample)
        progress(wanted.episodes, wanted.episodes)
        success = walked.success[0].double()
        sides = {"up": up[0], "down": ~up[0]}
        result = {
            "episodes": wanted.episodes,
            "success_alone": float(success.mean()),
            **{f"success_{side}": float(success[where].mean()) for side, where in sides.items() if where.any()},
        }
        return Measured("evaluation.json", result, {"T-maze, alone": result})


# The facet `report`: what a study adds to its report.


def memory_table(study: StudyRecords) -> list[Table]:
    """What the agents remember of the sign."""
    cells = {query: [study.cell(teacher, query) for teacher in study.teachers] for query in study.queries}
    rows = tuple((query, *(shown(_beyond_a_coin(cell)) for cell in own)) for query, own in cells.items())
    block = TableBlock("Twice the success alone, minus one", ("query policy", *study.teachers), rows)
    return [Table("table_memory", "What is remembered of the sign", ("0 is a coin, 1 is always right.",), (block,))]


def _beyond_a_coin(cell: CellResult) -> Estimate:
    """A coin at the junction has a success of 0.5."""
    success = cell.figure("success_alone")
    return Estimate(2 * success.mean - 1, 2 * success.low - 1, 2 * success.high - 1)


apil.register_task(
    "t-maze",
    TMaze,
    options=TMazeOptions(),
    model=Remembering,
    evaluation=TMazeEvaluation(),
    study=PlainStudy(seeds=3, episodes=200, compared=("dagger", "apil")),
    report=Extras(tables=memory_table),
)
