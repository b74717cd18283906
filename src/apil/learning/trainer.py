"""Training a stack of runs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from apil.crew import Crew
from apil.device import HOST
from apil.errors import ApilError
from apil.learning.ask import AnswerLog, Keep
from apil.learning.average import Average
from apil.learning.build import NAMED, Parts, build, configure_torch, whole_episodes
from apil.learning.collect import OpenTeachers, collect, review
from apil.learning.flight import Finished, Flight, merge
from apil.learning.group import Groups, take
from apil.learning.metrics import Meter, Row
from apil.learning.outlook import Outlook, Watch
from apil.learning.reception import Reception
from apil.learning.rows import CORRECTION, RowFormat, Rows
from apil.learning.spending import Spending
from apil.learning.state import place_in, weights
from apil.learning.store import Room, Store, new_store
from apil.learning.tally import Tally
from apil.learning.update import Learner
from apil.learning.walk import Agents, Question
from apil.learning.window import new_window
from apil.rng import Undropped
from apil.settings import RunSettings
from apil.teachers.protocol import Desk, Kept, answers_batches, costs_of, desk_of
from apil.types import Answer, Episodes, Lessons


class Trainer:
    """A stack of runs in training: collect by Alg 1, update, log. A run alone is a stack of one."""

    def __init__(
        self,
        configs: Sequence[RunSettings],
        log: AnswerLog | None = None,
        parts: Parts = NAMED,
        agents: Agents | None = None,
        rooms: Sequence[Room] | None = None,
    ) -> None:
        """`agents` are those of `configs` and `parts`, if they are built already; `rooms` are where the store of each
        run is, if not in memory."""
        configure_torch()
        self.configs = tuple(configs)
        self.agents = build(configs, parts) if agents is None else agents
        self.iteration = 0
        """Iterations done."""
        self.rows: list[list[Row]] = [[] for _ in configs]
        """The metrics of each run."""
        self._log, self._parts = log, parts
        self._tally: Tally | None = None
        learner = configs[0].learner
        window = new_window(self.agents, learner)
        self._learner = Learner(self.agents, parts.optimizer_of(configs[0]), learner.clip, window, parts.crew)
        switch = torch.tensor([config.whom.switch_cost for config in configs], dtype=torch.float64)
        self._meter = Meter(len(configs), _costs(self.agents, switch), switch if bool(switch.any()) else None)
        self._average = Average(self.agents, learner.average) if learner.average else None
        self.store = self._new_store(rooms) if learner.replay else None
        """The answers so far; None where each is learned from once."""
        self._watch = Watch(configs, self.agents.task.success_distance) if configs[0].looks else None
        closing = [config.query.stop == "when-flat" for config in configs]
        self._spending = Spending([config.query.answer_budget for config in configs], closing)
        self._all_running = [True] * len(configs)
        self._ended: dict[int, dict[str, Tensor]] = {}
        """The weights of runs that have ended, as they were then: what they remember goes on to change."""
        executes = [torch.full((len(g.streams.seeds),), g.part.executes_answer) for g in self.agents.queries]
        self._flight: Flight | None = None
        self._noting = threading.Lock()
        self._desk: Desk | None = None
        self._reception: Reception | None = None
        self._first_walk = 0
        if configs[0].walks:
            _check_walks(configs)
        check_crew(configs, self.agents, parts.crew)
        self._executes = Groups(self.agents.queries).join(executes) & (configs[0].query.asking == "live")

    def _new_store(self, rooms: Sequence[Room] | None) -> Store:
        task, learner = self.agents.task, self.configs[0].learner
        horizon = task.horizon if whole_episodes(self.configs[0]) else 1
        return new_store(RowFormat.of(task), horizon, learner, self.agents.streams.seeds, rooms)

    def tell_answers(self, tell: Callable[[int], None]) -> None:
        """Tells the number of answers from now on, also in the middle of an iteration."""
        self._log = self._tally = Tally(self._log, tell)

    def take_over(self, run: int, rows: Iterable[Rows]) -> None:
        """Puts answers of an earlier run into the store, before training begins; `observe_stored` follows."""
        assert self.store is not None
        for batch in rows:
            self.store.shelves[run].add(batch)

    def observe_stored(self) -> None:
        """Shows the model all that is in the store, once, before training begins."""
        assert self.store is not None
        for lessons in self.store.everything():
            self.agents.model.observe(lessons)

    def count_stored(self, before: int) -> None:
        """Counts the answers in the store where walks are in flight: some may be of walks that a stop has ended.

        `before` rows are of an earlier run.
        """
        assert self.store is not None
        own = self.store.shelves[0].room.array[before : self.store.shelves[0].rows]
        self._meter.answers[0] = int(np.count_nonzero(own["flags"] & CORRECTION == 0))
        self._first_walk = max(self._first_walk, int(own["iteration"].max()) + 1 if len(own) else 0)

    def open_desk(self, folder: Path | None) -> None:
        """Opens the desk where questions wait for people, if there are any; takes in what they answered before.

        After the store is recalled and before its answers are counted.
        """
        desk = desk_of(self.agents.teachers[0].part)
        if desk is None:
            return
        if self.store is None:
            raise ApilError("People teach with a store of answers: leave --as-printed out, or give --replay 128.")
        desk.open(folder, self.agents.task)
        self._desk = desk
        walks = bool(self.configs[0].walks)
        self._reception = Reception(
            desk, self.store, walks=walks, note=self._note_kept, reserve=self._reserve, release=self._release
        )
        self._reception.recover()
        if walks:
            self._first_walk = max(self._first_walk, desk.first_walk)
        else:
            self._reception.listen()

    def _reserve(self, answers: int) -> int:
        return 0 if self._flight is None else self._flight.reserve(answers)

    def _release(self) -> None:
        if self._flight is not None:
            self._flight.release()

    def _note_kept(self, kept: Kept) -> None:
        if self._log is not None:
            action, there = kept.action.view(1, 1, *kept.action.shape), torch.ones(1, 1, dtype=torch.bool)
            answer = Answer(action, torch.tensor([[kept.distance]]), torch.tensor([[kept.identity]]), there)
            with self._noting:
                self._log.note(kept.iteration, kept.step, there, answer)

    def recall(self, run: int, rows: int) -> None:
        """Adopts rows that are already in the store of a run; before training begins or a state is restored."""
        assert self.store is not None
        self.store.shelves[run].recall(rows)

    @property
    def running(self) -> list[bool]:
        """Which runs go on: not those that have had all their answers and learned what they could."""
        if not self._spending.any:
            return self._all_running
        return [not ended for ended in self._spending.ended.tolist()]

    @property
    def done(self) -> bool:
        """All runs have come to their end."""
        return self.iteration >= self.configs[0].iterations or not any(self.running)

    @property
    def progress(self) -> int:
        """How far it is: iterations or, where all runs have a budget of answers, the mean of the answers so far."""
        if any(config.query.answer_budget is None for config in self.configs):
            return self.iteration
        return int(self._meter.answers.mean())

    def step(self) -> list[Row | None] | None:
        """One iteration; where a row of metrics is due one for each run, None for runs that have ended before.

        The last iteration always has a row. If that comes before its time it is a look at a row not yet complete:
        training on to more iterations gives the rows that it would have given without the stop.
        """
        first, before = self.configs[0], self.running
        if self._tally is not None:
            self._tally.restart(int(self._meter.answers.sum()))
        if self._desk is not None:
            self._desk.version = self.iteration * first.learner.updates
        episodes = self._walk()
        if self._reception is not None:
            self._meter.answers[0] += self._reception.new()
        self.agents.model.observe(episodes)
        for group in self.agents.selectors:
            group.part.observe(take(episodes, group.runs))
        self._meter.add(episodes, self._learn(episodes))
        self.iteration += 1
        if self._average is not None:
            self._average.add(self.iteration)
        if self._watch is not None:
            self._look(self._watch, episodes)
        complete = self.iteration % first.log_every == 0
        if not complete and self.iteration != first.iterations:
            return None
        # A row that comes before its time has no validation loss: it must follow from the sums in a checkpoint alone.
        losses = self._validate() if complete else [Row() for _ in before]
        if complete and self._watch is not None:
            losses = [loss | self._watch.row(run) for run, loss in enumerate(losses)]
        if complete and self.agents.selectors:
            losses = [loss | ({"turned": bad} if (bad := self.turned(run)) else {}) for run, loss in enumerate(losses)]
        rows: list[Row | None] = [
            row | loss if running else None
            for row, loss, running in zip(self._meter.rows(self.iteration), losses, before, strict=True)
        ]
        for own, row in zip(self.rows, rows, strict=True):
            if row is not None:
                own.append(row)
        if complete:
            self._meter.restart()
        self._keep_ended()
        return rows

    def _look(self, watch: Watch, episodes: Episodes) -> None:
        """Looks at success alone where that is due; a run whose outlook has been flat for long asks no more."""
        watch.add(episodes)
        due = watch.due(self._meter.answers, self.running)
        if bool(due.any()):
            with self.averaged() as agents:
                watch.look(agents, self.iteration, due, self._meter.answers, self._held_out_losses(agents))
            self._spending.close(watch.closed)
            if self._flight is not None and bool(watch.closed[0].isfinite()):
                self._flight.hush()

    def outlook(self, run: int) -> Outlook | None:
        """What more answers would bring to a run; None before the first look, or where none are taken."""
        return None if self._watch is None else self._watch.of_run(run)

    def turned(self, run: int) -> dict[str, int]:
        """The teachers of a run who have turned bad, each with the number of the answer since when; none where skill is
        not estimated."""
        found: dict[str, int] = {}
        for group in self.agents.selectors:
            place = place_in(group.runs, run, len(self.configs))
            if place is not None and "turns" in group.part.memory:
                turns, since = (group.part.memory[name][place] for name in ("turns", "since"))
                members = self._members(run)
                found |= {members[k]: int(since[k]) for k in turns.nonzero().flatten().tolist()}
        return found

    def _members(self, run: int) -> tuple[str, ...]:
        groups = self.agents.teachers
        own = [g for g in groups if place_in(g.runs, run, len(self.configs)) is not None]
        return tuple(own[0].part.members)

    def _keep_ended(self) -> None:
        for run, running in enumerate(self.running):
            if not running and run not in self._ended:
                self._ended[run] = {name: view.detach().clone() for name, view in self._views(run).items()}

    def _restore_ended(self) -> None:
        for run, own in self._ended.items():
            self._restore_run(run, own)

    def _walk(self) -> Episodes:
        """The next batch of episodes, with no more answers than are left."""
        first = self.configs[0]
        if first.walks:
            return self._walk_in_flight(first.walks)
        left = self._spending.left(self._meter.answers)
        episodes = self._shared_walk(left) if self._shares(left) else self._whole_walk(left)
        if left is None:
            return episodes
        # What a run wanted to ask after its last answer was not left unanswered by anybody.
        open_ones = (episodes.answered.sum((1, 2)) < left).view(-1, 1, 1)
        return replace(episodes, unanswered=episodes.unanswered & open_ones)

    def _whole_walk(self, left: Tensor | None) -> Episodes:
        drive = collect if self.configs[0].query.asking == "live" else review
        return drive(self.agents, self.iteration, self.configs[0].learner.batch, log=self._log, left=left)

    def _shares(self, left: Tensor | None) -> bool:
        """Whether several processes share the episodes of the next batch. Where what is asked in one episode depends on
        the others, each of them walks the whole batch: the last answers of a budget, a review, a choice of teachers."""
        first = self.configs[0]
        if self._parts.crew.alone or first.query.asking != "live" or self.agents.selectors:
            return False
        most = first.learner.batch * self.agents.task.horizon
        return left is None or int(left[0]) == 0 or int(left[0]) >= most

    def _shared_walk(self, left: Tensor | None) -> Episodes:
        """Walks the share of this process in the next batch of episodes; returns the whole batch."""
        batch, crew = self.configs[0].learner.batch, self._parts.crew
        asks = left is None or int(left[0]) > 0
        own = collect(self.agents, self.iteration, crew.share(batch), left=None if asks else left)
        episodes = crew.gather(own, batch)
        if self._log is not None and asks:
            self._note_all(self._log, episodes)
        return episodes

    def _note_all(self, log: AnswerLog, episodes: Episodes) -> None:
        """Writes the answers of a batch down, except those that are on file from before a stop: simulated teachers
        give them again."""
        put = episodes.answered | episodes.unanswered
        for t in range(put.shape[-1]):
            if bool(put[..., t].any()):
                said = (episodes.action, episodes.distance, episodes.identity, episodes.answered)
                answer = Answer(*(table[:, :, t] for table in said))

                def given(missing: Tensor, keep: Keep, answer: Answer = answer) -> Answer:
                    keep(missing, answer, False)
                    return answer

                log.consult(self.iteration, t, put[..., t], given)

    def _walk_in_flight(self, walks: int) -> Episodes:
        """The next episodes that come to their end. Their answers are in the store since they were given."""
        if self._flight is None:
            left = self._spending.left(self._meter.answers)
            most = None if left is None else int(left[0])
            if most is not None and self._desk is not None:
                most = max(0, most - self._desk.reviews)
            self._flight = Flight(self.agents, walks, first=self._first_walk, left=most, keep=self._keep)
            if self._reception is not None:
                self._reception.listen()
        finished: list[Episodes] = []
        while len(finished) < self.configs[0].learner.batch:
            event = self._flight.event()
            if isinstance(event, Finished):
                finished.append(event.episodes)
        self._first_walk = self._flight.next
        episodes = merge(finished)
        if self._flight.left == 0:  # nobody was there to answer the questions that were not put
            return replace(episodes, unanswered=torch.zeros_like(episodes.unanswered))
        return episodes

    def _keep(self, question: Question, answer: Answer) -> None:
        """Makes an answer last, in the thread that it came in."""
        assert self.store is not None
        self.store.put(question, answer, self.iteration * self.configs[0].learner.updates, bool(self._executes[0]))
        if self._log is not None:
            with self._noting:
                self._log.note(question.iteration, question.t, question.put, answer)

    def close(self) -> None:
        """Abandons walks in flight, whose answers are kept, and closes the environments."""
        if self._flight is not None:
            self._flight.close()
            self._flight = None
        if self._desk is not None:
            self._desk.close()
            self._desk = self._reception = None
        self.agents.close()

    def _learn(self, episodes: Episodes) -> dict[str, Tensor]:
        if self.store is None:
            return self._learner.update(episodes, self.iteration)
        updates = self.configs[0].learner.updates
        if not self.configs[0].walks:
            self.store.add(episodes, self.iteration, self.iteration * updates, self._executes)
        left = self._spending.left(self._meter.answers)
        running = ~self._spending.ended
        asking = running if left is None else left > 0
        return self._learner.replay(episodes, self.store, self.iteration, updates, running, asking)

    def _validate(self) -> list[Row]:
        """The loss on answers that are held out, and whether a run that has spent its answers still learns.

        It is that of the averaged weights, if there are any, which will act: single iterates swing.
        """
        with self.averaged() as agents:
            losses = self._held_out_losses(agents)
        self._spending.look(self._meter.answers, losses)
        return [{} if math.isnan(loss) else {"validation_loss": loss} for loss in losses.tolist()]

    @torch.no_grad()
    def _held_out_losses(self, agents: Agents) -> Tensor:
        """[runs]: the mean loss on answers that are held out; NaN where there are none."""
        runs = len(self.configs)
        losses = torch.full((runs,), torch.nan)
        if self.store is not None:
            for lessons, counts in self.store.held_out():
                loss = self._undropped_loss(agents, lessons)
                losses = torch.where(counts > 0, agents.thinking.back(loss) * lessons.live.shape[1] / counts, losses)
        return losses

    def _undropped_loss(self, agents: Agents, lessons: Lessons) -> Tensor:
        """[runs]: the policy loss without dropout. Each process computes that of some episodes, if there are enough."""
        crew, draws = self._parts.crew, Undropped(len(self.configs))
        part = crew.part(size) if (size := lessons.live.shape[1]) >= crew.size else None
        with agents.thinking:
            if part is None:
                return agents.model.losses(agents.thinking.bring(lessons), draws)[0]
            return crew.sum([agents.model.losses(agents.thinking.bring(lessons), draws, part)[0]])[0]

    def train(self, progress: Callable[[int], None] = lambda iterations: None) -> None:
        """Trains to the end; `progress` gets how far it is, at every row."""
        try:
            self.open_desk(None)
            while not self.done:
                if self.step() is not None:
                    progress(self.progress)
        finally:
            self.close()

    def trained_agents(self) -> Agents:
        """The agents as they are evaluated, with averaged weights if the config asks for them; ends the training.

        A run that ended before the others is as it was then. Agents that were trained on another device are on the
        host.
        """
        self._restore_ended()
        if self._average is not None:
            self._average.apply()
        return self.agents if self.agents.thinking.is_host else self._on_host()

    @torch.no_grad()
    def _on_host(self) -> Agents:
        agents = build(self.configs, replace(self._parts, device=HOST))
        for run in range(len(self.configs)):
            trained = weights(self.agents, run)
            for name, view in weights(agents, run).items():
                view.copy_(trained[name])
        return agents

    @contextmanager
    def averaged(self) -> Iterator[Agents]:
        """The agents with averaged weights for a look at them in the middle of training, which it does not change."""
        if self._average is not None:
            self._average.swap()
        try:
            yield self.agents
        finally:
            if self._average is not None:
                self._average.swap()

    def answers(self, run: int) -> int:
        """Answers that a run has had so far."""
        return int(self._meter.answers[run])

    def state(self, run: int) -> dict[str, Tensor]:
        """Everything that changes in training, of one run. Randomness has no state; tasks start over each iteration."""
        views = {n: v.detach().to("cpu", copy=True) for n, v in self._views(run).items()}
        walks = {"walks": torch.tensor([float(self._first_walk)])} if self.configs[0].walks else {}
        looks = {} if self._watch is None else self._watch.state(run)
        return views | self._meter.state(run) | self._spending.state(run) | walks | looks

    def _views(self, run: int) -> dict[str, Tensor]:
        averages = {} if self._average is None else self._average.of_run(run)
        return weights(self.agents, run) | averages | self._learner.state(run)

    def restore(self, iteration: int, saved: Sequence[dict[str, Tensor]]) -> None:
        """Goes back to the states of all runs, saved after `iteration` iterations."""
        for run, own in enumerate(saved):
            self._restore_run(run, own)
        self._meter.restore(saved)
        self._spending.restore(saved)
        if self._watch is not None:
            self._watch.restore(saved)
            self._spending.close(self._watch.closed)
        self._ended = {}
        self._keep_ended()
        self.iteration = iteration
        if self.configs[0].walks:
            self._first_walk = int(saved[0]["walks"])

    @torch.no_grad()
    def _restore_run(self, run: int, saved: Mapping[str, Tensor]) -> None:
        for name, view in self._views(run).items():
            view.copy_(saved[name])


def check_crew(configs: Sequence[RunSettings], agents: Agents, crew: Crew) -> None:
    """Refuses what several processes cannot train together."""
    if crew.alone:
        return
    opened, learner = OpenTeachers.of(agents, 0, 1), configs[0].learner
    fewest = min(learner.batch, learner.replay or learner.batch)
    for wrong, why in (
        (len(configs) > 1, "a stack of several runs: train them one by one"),
        (bool(configs[0].walks), "walks in flight: leave --walks out"),
        (
            not all(answers_batches(group.part) for group in opened.sessions),
            "teachers that are asked one question at a time (people, services, scripts): train in one process",
        ),
        (
            fewest < crew.size,
            f"batches of {fewest}: each of {crew.size} processes needs a share; raise --batch (and --replay)",
        ),
    ):
        if wrong:
            raise ApilError(f"Several processes of torchrun do not go with {why}.")


def _check_walks(configs: Sequence[RunSettings]) -> None:
    """Refuses settings with which walks cannot be in flight."""
    first = configs[0]
    for wrong, why in (
        (len(configs) > 1, "a stack of several runs: train them one by one"),
        (not first.learner.replay, "replay 0, which keeps no store of answers: give replay, for example 128"),
        (first.query.asking == "review", "asking review, where nobody waits: leave walks or asking out"),
        (whole_episodes(first), f"the task '{first.task.name}', whose agent remembers whole episodes: leave walks out"),
    ):
        if wrong:
            raise ApilError(f"walks in flight do not go with {why}.")


def _costs(agents: Agents, switch: Tensor) -> Tensor | None:
    """[runs, K]: what an answer of each member costs; None if every answer of all runs costs 1, as does a switch."""
    costs = torch.ones(len(agents.streams.seeds), agents.model.teachers, dtype=torch.float64)
    for group in agents.teachers:
        costs[group.runs] = torch.tensor(costs_of(group.part), dtype=torch.float64)
    return None if bool((costs == 1).all()) and not bool(switch.any()) else costs
