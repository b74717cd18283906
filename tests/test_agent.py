"""A trained agent: loaded in one line, acts in one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from toy_environments import Corridor

import apil
from apil.agent.acting import Agent, Decision
from apil.errors import ApilError
from apil.learning.collect import Step, collect
from apil.query import QUERY_POLICIES
from apil.query.scored import scored
from apil.r2r.task import R2R
from apil.rng import Streams
from apil.runs.api import Trained
from apil.tasks import from_gymnasium
from apil.tasks.gymnasium.layout import Layout
from apil.tasks.gymnasium.space_json import space_from_json, space_to_json
from apil.tasks.maze import Maze
from apil.teachers import Team
from apil.teachers.committee import committee
from apil.types import Observation

SMALL: dict[str, Any] = {"batch": 4, "iterations": 6, "log_every": 2, "save_every": 3, "hidden": 16, "models": 3}
PARTS = ("total", "behavioral", "intrinsic", "extrinsic", "model")


def maze_run(folder: Path | None = None, query: str = "apil", teachers: str = "twodifdetm", **more: Any) -> Trained:
    return apil.train(Maze(), committee(teachers), query, folder=folder, **{**SMALL, **more})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a MAZE run."""
    folder = tmp_path_factory.mktemp("runs") / "demo"
    maze_run(folder)
    return folder


def observations(count: int, seed: int = 0) -> Observation:
    maze = Maze()
    return maze.observe(maze.reset(Streams([seed]).draws("task", 0), count))


def steps_of(trained: Trained, number: int, count: int, acting: Any, *, greedy: bool) -> list[Step]:
    steps: list[Step] = []
    collect(
        trained.agents, number, count, acting, "acting/", greedy=greedy, watch=lambda state, step: steps.append(step)
    )
    return steps


def same(one: Decision, other: Decision) -> bool:
    mappings = ((one.identity, other.identity), (one.uncertainty, other.uncertainty))
    return (
        np.array_equal(one.action, other.action)
        and np.array_equal(one.ask, other.ask)
        and np.array_equal(one.policy, other.policy)
        and all(a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a) for a, b in mappings)
    )


def close(one: Decision, other: Decision) -> bool:
    """The same decision up to rounding."""
    pairs = [(one.policy, other.policy)]
    for a, b in ((one.identity, other.identity), (one.uncertainty, other.uncertainty)):
        pairs += [(a[name], b[name]) for name in a]
    return all(np.allclose(a, b, atol=1e-5) for a, b in pairs)


RULES: list[tuple[str, dict[str, Any]]] = [
    ("apil", {}),
    ("apil", {"expectation": "monte-carlo", "teachers": "twodifdetm"}),
    ("errpred", {"threshold": 0.3}),
    ("behvun", {"budget": 0.3}),
    ("rnd", {"threshold": 0.01}),
    ("slip", {"budget": 0.2}),
    ("every", {"query_options": {"k": 3}}),
    ("lazydagger", {"query_options": {"warm": 2}}),
    ("thriftydagger", {"query_options": {"warm": 2}}),
]


@pytest.mark.parametrize(("query", "more"), RULES)
def test_an_episode_is_what_training_collects(query: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Greedy and with help, of one episode; the agent is loaded from the folder and hears the answers."""
    trained = maze_run(tmp_path / "run", query, **more)
    agent = apil.load(tmp_path / "run")
    with agent.episode(seed=0) as episode:
        for step in steps_of(trained, 0, 1, "helped", greedy=True):
            decision = episode.act(step.seen)
            assert decision.policy.tolist() == step.belief.mean[0].tolist()
            assert [decision.identity[name].tolist() for name in agent.teachers] == step.belief.identity[0].T.tolist()
            for part in PARTS:
                assert decision.uncertainty[part].tolist() == getattr(step.belief.uncertainty, part)[0].tolist()
            if bool(step.live):
                assert decision.ask.tolist() == step.fired[0].tolist()
            if bool(step.answered):
                episode.answer(step.answer.action[0].numpy(), teacher=agent.teachers[int(step.answer.identity)])
            else:
                assert decision.action.tolist() == step.action[0].tolist()


@pytest.mark.parametrize("teachers", ["twodifdetm", "+".join(["first", "last"] * 20)])
def test_sampled_episodes_are_what_training_collects(teachers: str) -> None:
    trained = maze_run(None, "apil", teachers, expectation="monte-carlo")
    with trained.agent.episode(sample=True, seed=5) as episode:
        for step in steps_of(trained, 5, 3, "alone", greedy=False):
            decision = episode.act(step.seen)
            assert decision.action.tolist() == step.action[0].tolist()
            assert decision.ask[step.live[0]].tolist() == step.fired[0][step.live[0]].tolist()


def test_a_saved_agent_is_the_same_and_needs_nothing_else(run: Path, tmp_path: Path) -> None:
    agent = apil.load(run)
    agent.save(tmp_path / "agent")
    assert sorted(path.name for path in (tmp_path / "agent").iterdir()) == ["agent.json", "agent.safetensors"]
    again = apil.load(tmp_path / "agent")
    again.save(tmp_path / "agent")
    seen = observations(20)
    for _ in range(3):
        assert same(agent.act(seen), again.act(seen))
    assert same(apil.load(tmp_path / "agent").act(seen), apil.load(run).act(seen))
    assert same(agent.act(seen, sample=True, seed=7), again.act(seen, sample=True, seed=7))
    with pytest.raises(ApilError, match="holds something else than a saved agent"):
        agent.save(run)


def test_another_process_in_another_folder_acts_without_training_code(run: Path, tmp_path: Path) -> None:
    program = """
import json, sys, apil
features = json.load(sys.stdin)
decision = apil.load(sys.argv[1]).act(features)
loaded = [m for m in sys.modules if m.split(".")[:2] in (["apil", p] for p in ("learning", "runs", "studies", "r2r"))]
print(json.dumps([decision.action.tolist(), decision.ask.tolist(), decision.policy.tolist(), loaded]))
"""
    seen = observations(5)
    shutil.copytree(run, tmp_path / "copied")
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "copied")],
        input=json.dumps(seen.features[0].tolist()),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    actions, asks, policy, loaded = json.loads(told.stdout)
    expected = apil.load(run).act(seen.features[0])
    assert loaded == []
    assert actions == expected.action.tolist()
    assert asks == expected.ask.tolist()
    assert np.allclose(policy, expected.policy, atol=1e-5)


@pytest.mark.parametrize("expectation", ["exact", "monte-carlo"])
@pytest.mark.parametrize("teachers", ["twodifdetm", "+".join(["first", "last"] * 20)])
def test_a_batch_gives_each_observation_what_it_gets_alone(expectation: str, teachers: str) -> None:
    agent = maze_run(None, "behvun", teachers, expectation=expectation, threshold=0.9).agent
    seen = observations(600)
    batch = agent.act(seen, step=3)
    for place in (0, 249, 250, 599):
        alone = agent.act(seen.features[0, place], valid=seen.valid[0, place], step=3)
        assert isinstance(alone.ask, bool)
        assert close(
            alone,
            Decision(
                batch.action[place],
                batch.ask[place],
                {name: values[place] for name, values in batch.identity.items()},
                {name: values[place] for name, values in batch.uncertainty.items()},
                batch.policy[place],
            ),
        )


def test_a_decision_says_what_it_is_about(run: Path) -> None:
    agent = apil.load(run)
    assert repr(agent) == "Agent(maze: 152 features, 4 actions; teachers first, last; asks by apil)"
    seen = observations(1)
    decision = agent.act(Observation(seen.features[0, 0], seen.valid[0, 0]))
    assert decision.policy.shape == (4,)
    assert not decision.policy[~seen.valid[0, 0].numpy()].any()
    assert int(decision.action) == int(decision.policy.argmax())
    assert list(decision.identity) == ["first", "last"]
    assert sum(decision.identity.values()) == pytest.approx(1.0)
    assert list(decision.uncertainty) == list(PARTS)
    assert decision.uncertainty["total"] == pytest.approx(
        decision.uncertainty["behavioral"] + decision.uncertainty["model"], abs=1e-5
    )
    twins = maze_run(None, "bc", "tworand", iterations=1).agent
    assert list(twins.act(seen.features[0, 0]).identity) == ["uniform", "uniform 2"]


def test_what_is_drawn_goes_by_the_seed(run: Path) -> None:
    agent, other = apil.load(run), apil.load(run)
    seen = observations(50)

    def drawn(agent: Agent, **how: Any) -> list[list[int]]:
        return [agent.act(seen, sample=True, **how).action.tolist() for _ in range(4)]

    first = drawn(agent)
    assert first == drawn(other)
    assert len({tuple(actions) for actions in first}) == 4
    assert len({tuple(actions) for actions in drawn(agent, seed=1)}) == 1
    assert drawn(agent, seed=1)[0] == first[1]
    greedy = [agent.act(seen) for _ in range(3)]
    assert all(close(decision, greedy[0]) for decision in greedy)
    # APIL draws its query action: not the same one at each call.
    assert len({tuple(agent.act(seen).ask.tolist()) for _ in range(8)}) > 1


@pytest.mark.parametrize(("query", "more"), [*RULES, ("random", {"budget": 0.4}), ("modlun", {"budget": 0.2})])
def test_acting_changes_nothing(query: str, more: dict[str, Any], tmp_path: Path) -> None:
    agent = maze_run(None, query, **more).agent
    agent.save(tmp_path / "before")
    seen = observations(8)
    agent.act(seen)
    with agent.episode() as one, agent.episode() as other:
        asked = []
        for step in range(30):  # more than an episode of training
            asked.append(one.act(seen).ask)
            one.answer(seen.valid[0].float().argmax(-1).numpy(), teacher="first", where=asked[-1])
            other.act(Observation(seen.features[:, :2], seen.valid[:, :2]))
            agent.act(seen, step=step)
    with agent.episode(seed=0) as again:
        for ask in asked:
            assert again.act(seen).ask.tolist() == ask.tolist()
            again.answer(seen.valid[0].float().argmax(-1).numpy(), teacher="first", where=ask)
    agent.save(tmp_path / "after")
    assert (tmp_path / "before" / "agent.safetensors").read_bytes() == (
        tmp_path / "after" / "agent.safetensors"
    ).read_bytes()


def test_episodes_keep_their_budget_and_do_not_disturb_each_other() -> None:
    agent = maze_run(query="entropy", budget=0.2).agent
    seen = [observations(30, step) for step in range(40)]
    with agent.episode(seed=1) as alone, agent.episode(seed=1) as one, agent.episode(seed=2) as other:
        expected = [alone.act(step).ask for step in seen]
        found = []
        for step in seen:
            other.act(observations(30, 99))
            found.append(one.act(step).ask)
    np.testing.assert_array_equal(found, expected)
    assert np.mean(found) == pytest.approx(0.2, rel=0.2)


def test_a_teacher_that_was_asked_keeps_control_until_it_agrees() -> None:
    trained = maze_run(None, "lazydagger", iterations=3, query_options={"warm": 1, "release": 0.5}, threshold=2.0)
    agent = trained.agent  # its classifier never fires: it asks only while a teacher has control
    many = observations(100)
    corner = int((many.valid[0].sum(-1) == 2).nonzero()[0])
    seen, valid = many.features[0, corner], many.valid[0, corner]
    own = int(agent.act(seen, valid=valid).action)  # one of two, so its probability is above a half
    other = next(action for action in valid.nonzero().flatten().tolist() if action != own)
    with agent.episode() as episode:
        assert not episode.act(seen, valid=valid).ask
        episode.answer(other, teacher="last", distance=3.0)
        assert episode.act(seen, valid=valid).ask
        assert not episode.act(seen, valid=valid).ask  # nobody answered, so nobody has control
        episode.answer(own, teacher="first")
        assert not episode.act(seen, valid=valid).ask


def test_what_an_episode_cannot_do_is_told(run: Path) -> None:
    agent = apil.load(run)
    seen = observations(2)
    with agent.episode() as episode:
        with pytest.raises(ApilError, match="Nothing was decided yet"):
            episode.answer(0, teacher="first")
        episode.act(seen)
        with pytest.raises(ApilError, match=r"Unknown teacher 'frist'. Did you mean 'first'\? Known: first, last"):
            episode.answer([0, 0], teacher="frist")
        with pytest.raises(ApilError, match="1 answer for 2 episodes"):
            episode.answer([0], teacher="first")
        with pytest.raises(ApilError, match=r"action 9 is not in the action space Discrete\(4\)"):
            episode.answer([0, 9], teacher="first")
        with pytest.raises(ApilError, match="began with 2 observations and now has 3"):
            episode.act(observations(3))
    with pytest.raises(ApilError, match="The episode is over"):
        episode.act(seen)


@pytest.mark.parametrize(
    ("observation", "valid", "message"),
    [
        (np.zeros(3), None, r"The observation \(shape \(3,\)\) does not fit 'maze': give 152 finite features"),
        (np.zeros((2, 2, 152)), None, "does not fit 'maze'"),
        (np.full(152, np.nan), None, "does not fit 'maze'"),
        ("north", None, r"The observation \(str\)"),
        (None, None, "does not fit 'maze'"),
        (np.zeros(152), np.zeros(4, bool), "at least one of them true"),
        (np.zeros(152), np.ones(3, bool), r"shape \(3,\)"),
    ],
)
def test_what_is_no_observation_is_told(run: Path, observation: Any, valid: Any, message: str) -> None:
    with pytest.raises(ApilError, match=message) as told:
        apil.load(run).act(observation, valid=valid)
    assert "\n" not in str(told.value)


def mountain() -> Any:
    return from_gymnasium(
        lambda: gymnasium.make("MountainCarContinuous-v0"),
        distance=lambda env: max(0.0, 0.45 - float(env.unwrapped.state[0])),
        horizon=12,
    )


def pushes() -> Any:
    return Team({"follow": lambda seen, rng: [1.0 if seen[1] >= 0 else -1.0], "still": lambda seen, rng: [0.25]})


def test_continuous_actions_are_ready_for_the_environment(tmp_path: Path) -> None:
    apil.train(mountain(), pushes(), "apil", folder=tmp_path / "run", as_printed=True, **SMALL)
    agent = apil.load(tmp_path / "run")
    env = gymnasium.make("MountainCarContinuous-v0")
    seen, _ = env.reset(seed=0)
    with agent.episode() as episode:
        for _ in range(20):
            decision = episode.act(seen)
            assert decision.action.shape == (1,)
            assert env.action_space.contains(decision.action)
            assert decision.policy.shape == (2,)
            assert float(decision.action[0]) == pytest.approx(np.clip(decision.policy[0], -1, 1), abs=1e-6)
            episode.answer([0.25], teacher="still")
            seen = env.step(decision.action)[0]
    batch = np.stack([env.observation_space.sample() for _ in range(30)])
    whole = agent.act(batch)
    assert whole.action.shape == (30, 1)
    assert whole.action[7] == pytest.approx(agent.act(batch[7]).action, abs=1e-5)
    drawn = agent.act(np.repeat(batch[:1], 300, 0), sample=True).action
    assert len(np.unique(drawn)) > 100
    assert np.all(np.abs(drawn) <= 1)
    with pytest.raises(ApilError, match=r"The observation \(shape \(3,\)\) does not fit 'MountainCarContinuous-v0'"):
        agent.act(np.zeros(3))


class Spots(gymnasium.Env[Any, Any]):
    """Shows a bright left or right half and the number of the step."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"picture": spaces.Box(0, 255, (8, 8, 1), np.uint8), "inner": spaces.Dict({"step": spaces.Discrete(9)})}
        )
        self.action_space = spaces.Discrete(2)
        self.steps = 0

    def _show(self) -> dict[str, Any]:
        picture = np.zeros((8, 8, 1), np.uint8)
        side = int(self.np_random.integers(2))
        picture[:, 4 * side : 4 * side + 4] = 255
        return {"picture": picture, "inner": {"step": np.int64(self.steps)}}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._show(), 0.0, False, self.steps == 4, {}


class Bright(nn.Module):
    """An encoder of somebody's own."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(64, width)

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        found: Tensor = self.layer(seen["picture"].flatten(1))
        return found


def spots(encoder: Any = "auto") -> Any:
    return from_gymnasium(Spots, distance="steps", horizon=4, encoder=encoder)


def side() -> Any:
    return Team({"side": lambda seen, rng: int(seen["picture"][0, 4, 0] > 0)})


def test_pictures_and_parts_are_read_as_the_environment_gives_them(tmp_path: Path) -> None:
    trained = apil.train(spots(), side(), "apil", folder=tmp_path / "run", **SMALL)
    agent = apil.load(tmp_path / "run")
    env = Spots()
    one, two = env.reset(seed=0)[0], env.step(0)[0]
    batch = {
        "picture": np.stack([one["picture"], two["picture"]]),
        "inner": {"step": np.array([one["inner"]["step"], two["inner"]["step"]])},
    }
    found = agent.act(batch, seed=0)
    assert same(found, trained.agent.act(batch, seed=0))
    for place, seen in enumerate((one, two)):
        assert np.allclose(agent.act(seen).policy, found.policy[place], atol=1e-5)
    for wrong in (one["picture"], {"picture": one["picture"]}, {**batch, "picture": one["picture"]}, 3):
        with pytest.raises(ApilError, match="does not fit 'Spots'"):
            agent.act(wrong)
    with pytest.raises(ApilError, match="only agents that read vectors"):
        agent.export(tmp_path / "policy.onnx")


def test_an_encoder_of_ones_own_must_be_given(tmp_path: Path) -> None:
    torch.manual_seed(3)
    trained = apil.train(spots(Bright()), side(), "apil", folder=tmp_path / "run", **SMALL)
    with pytest.raises(ApilError, match=r"give it with apil.load\(folder, encoder=module\)"):
        apil.load(tmp_path / "run")
    seen = Spots().reset(seed=1)[0]
    for encoder in (Bright(), lambda layout: Bright()):
        loaded = apil.load(tmp_path / "run", encoder=encoder)
        assert same(loaded.act(seen, seed=0), trained.agent.act(seen, seed=0))
    with pytest.raises(ApilError, match="give the encoder that it was trained with"):
        apil.load(tmp_path / "run", encoder=Bright(7))
    apil.train(spots(), side(), "bc", folder=tmp_path / "plain", **SMALL)
    with pytest.raises(ApilError, match="leave encoder out"):
        apil.load(tmp_path / "plain", encoder=Bright())
    with pytest.raises(ApilError, match="leave it out"):
        apil.load(tmp_path / "plain", data="somewhere")


def evaluate_policy(model: Any, envs: list[gymnasium.Env[Any, Any]], episodes: int, deterministic: bool) -> list[float]:
    """The calls of stable_baselines3.common.evaluation.evaluate_policy, with its DummyVecEnv."""
    seen = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    returns, totals = np.zeros(len(envs)), list[float]()
    states, starts = None, np.ones(len(envs), bool)
    while len(totals) < episodes:
        actions, states = model.predict(np.stack(seen), state=states, episode_start=starts, deterministic=deterministic)
        for place, env in enumerate(envs):
            seen[place], reward, terminated, truncated, _ = env.step(actions[place])
            returns[place] += float(reward)
            starts[place] = terminated or truncated
            if starts[place]:
                totals.append(returns[place])
                returns[place], seen[place] = 0.0, env.reset()[0]
    return totals


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation_helpers_of_stable_baselines_work(tmp_path: Path, deterministic: bool) -> None:
    task = from_gymnasium(lambda: Corridor(ends=9), distance=lambda env: 3.0 - env.unwrapped.place, horizon=9)
    ahead = Team({"ahead": lambda seen, rng: 2})
    apil.train(task, ahead, "dagger", folder=tmp_path / "run", **{**SMALL, "iterations": 60, "learning_rate": 0.01})
    agent = apil.load(tmp_path / "run")
    returns = evaluate_policy(agent, [Corridor(ends=9), Corridor(ends=9)], 6, deterministic)
    assert returns == [1.0] * len(returns)
    action, state = agent.predict(Corridor(ends=9).reset()[0], deterministic=True)
    assert (int(action), state) == (2, None)
    assert int(agent.predict(np.zeros(1, np.float32), deterministic=True, action_masks=[True, False])[0]) == 1


def test_a_query_policy_that_is_not_known_leaves_the_agent_able_to_act(tmp_path: Path) -> None:
    apil.register_query_policy("shy", scored(lambda belief: 1 - belief.mean.amax(-1)), "asks when shy")
    try:
        maze_run(tmp_path / "run", "shy", budget=0.3)
        seen = observations(6)
        expected = apil.load(tmp_path / "run").act(seen)
    finally:
        QUERY_POLICIES.forget("shy")
    with pytest.warns(UserWarning, match="The query policy 'shy' is not known here, so decision.ask is None"):
        agent = apil.load(tmp_path / "run")
    decision = agent.act(seen)
    assert decision.ask is None
    assert decision.action.tolist() == expected.action.tolist()
    with agent.episode() as episode:
        assert episode.act(seen).ask is None
        episode.answer(decision.action, teacher="last")
        episode.act(seen)
    agent.save(tmp_path / "agent")
    apil.register_query_policy("shy", scored(lambda belief: 1 - belief.mean.amax(-1)), "asks when shy")
    try:
        assert same(apil.load(tmp_path / "agent").act(seen), expected)
    finally:
        QUERY_POLICIES.forget("shy")


def test_a_run_in_training_opens_at_its_newest_checkpoint_with_averaged_weights(tmp_path: Path) -> None:
    trained = maze_run(tmp_path / "run", average=0.9)
    assert same(apil.load(tmp_path / "run").act(observations(5)), trained.agent.act(observations(5)))
    plain = maze_run(None, average=0.0)
    assert not same(trained.agent.act(observations(5), seed=0), plain.agent.act(observations(5), seed=0))
    newest = max((tmp_path / "run").glob("checkpoint-*.json"))
    newest.unlink()
    before = apil.load(tmp_path / "run").act(observations(5), seed=0)
    assert not same(before, trained.agent.act(observations(5), seed=0))


@pytest.fixture(scope="module")
def saved(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "agent"
    apil.load(run).save(folder)
    return folder


def complaint(work: Callable[[], object]) -> str:
    """What an `ApilError` says; '' if there was none. Any other error is raised."""
    try:
        work()
    except ApilError as error:
        return str(error)
    return ""


def refusal(folder: Path) -> str:
    told = complaint(lambda: apil.load(folder))
    assert "\n" not in told
    return told


def _json(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        values = json.loads((folder / "agent.json").read_text())
        (folder / "agent.json").write_text(json.dumps(change(values)))

    return apply


def _bit(folder: Path) -> None:
    content = bytearray((folder / "agent.safetensors").read_bytes())
    content[-5] ^= 1
    (folder / "agent.safetensors").write_bytes(bytes(content))


def _link(target: str, name: str = "agent.json") -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "There is no folder"),
        (lambda folder: (folder / "agent.json").unlink(), "holds no agent.json"),
        (lambda folder: (folder / "agent.safetensors").unlink(), "does not exist"),
        (lambda folder: (folder / "agent.json").write_text("{"), "Cannot read"),
        (lambda folder: (folder / "agent.json").write_bytes(b"\x80\x04cos\nsystem\n."), "Cannot read"),
        (_bit, "is not the file that agent.json was written with"),
        (_link("nowhere"), "holds no agent.json"),
        (_link("agent.json"), "holds no agent.json"),
        (_link("/dev/zero"), "holds no agent.json"),
        (_link("/dev/zero", "agent.safetensors"), "does not exist"),
        (_json(lambda v: [v]), "does not describe an agent"),
        (_json(lambda v: {**v, "schema": 99}), "newer apil"),
        (_json(lambda v: {**v, "horizon": 0}), "horizon"),
        (_json(lambda v: {**v, "code": "import os"}), "code"),
        (_json(lambda v: {**v, "features": 10**6}), "do not fit its description"),
        (_json(lambda v: {**v, "teachers": ["a\nb"]}), "does not describe an agent"),
        (_json(lambda v: {**v, "task": "a\nb"}), "task"),
        (_json(lambda v: {**v, "model": {**v["model"], "hidden": 10**5}}), "do not fit its description"),
        (_json(lambda v: {**v, "action_space": {"kind": "os.system"}}), "is no space"),
        (_json(lambda v: {**v, "action_space": {"kind": "Discrete", "n": 5, "start": 0}}), "do not fit"),
        (_json(lambda v: {**v, "own": {}}), "model of its own and is not known here"),
        (_json(lambda v: {**v, "query": {**v["query"], "options": {"x": 1}}}), "does not take these options"),
        (_json(lambda v: {**v, "query": {**v["query"], "budget": 0.5}}), "memory"),
        (
            _json(lambda v: {**v, "query": {"name": "safedagger", "options": {"warm": "x"}}}),
            "does not take these options",
        ),
        (
            _json(
                lambda v: {
                    **v,
                    "horizon": 10**6,
                    "model": {**v["model"], "samples": 10**4, "expectation": "monte-carlo"},
                }
            ),
            "do not fit",
        ),
        (
            _json(
                lambda v: {
                    **v,
                    "horizon": 10**6,
                    "model": {**v["model"], "samples": 10**4, "expectation": "monte-carlo"},
                    "query": {"name": "modlun", "threshold": 0.1},
                }
            ),
            "Cannot build the agent",
        ),
    ],
)
def test_damaged_agents_are_refused_in_one_line(saved: Path, tmp_path: Path, damage: Any, message: str) -> None:
    folder = tmp_path / "agent"
    shutil.copytree(saved, folder)
    damage(folder)
    assert message in refusal(folder)


def test_tensors_that_are_not_numbers_are_refused(saved: Path, tmp_path: Path) -> None:
    tensors = load_file(saved / "agent.safetensors")
    tensors["policy.w2"][0, 0] = torch.nan
    shutil.copytree(saved, tmp_path / "agent")
    save_file(tensors, tmp_path / "agent" / "agent.safetensors")
    _json(lambda v: {**v, "sha256": None})(tmp_path / "agent")
    assert "has no checkpoint yet" in refusal(tmp_path / "agent")
    digest = hashlib.sha256((tmp_path / "agent" / "agent.safetensors").read_bytes()).hexdigest()
    _json(lambda v: {**v, "sha256": digest})(tmp_path / "agent")
    assert "policy.w2: not finite" in refusal(tmp_path / "agent")


def test_a_damaged_checkpoint_is_passed_over(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    for path in sorted(folder.glob("checkpoint-*.safetensors"), reverse=True):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(bytes(content))
        if path.name.endswith("06.safetensors"):
            apil.load(folder)
            assert "checkpoint-00000006 is damaged" in capsys.readouterr().err
    assert "No checkpoint" in refusal(folder)


_plain: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.text(max_size=3), st.floats(allow_subnormal=False)
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from _places(part, (*at, name))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_description_is_opened_or_refused_in_one_line(saved: Path, data: st.DataObject) -> None:
    values = json.loads((saved / "agent.json").read_text())
    values["observation_space"] = space_to_json(spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(150)}))
    place = data.draw(st.sampled_from([place for place in _places(values) if place]))
    inner = values
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = data.draw(_plain | st.lists(_plain, max_size=2) | st.dictionaries(st.text(max_size=2), _plain))
    folder = saved.parent / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved, folder)
    (folder / "agent.json").write_text(json.dumps(values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "\n" not in complaint(lambda: apil.load(folder).act(observations(2).features[0]))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (3,), np.float64),
        spaces.Box(np.array([0.1, -np.inf], np.float32), np.array([0.7, 5.0], np.float32)),
        spaces.Box(0, 255, (4, 5, 3), np.uint8),
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([3, 2], start=[1, 0]),
        spaces.MultiDiscrete(np.array([[3, 2], [4, 5]])),
        spaces.MultiBinary((2, 3)),
        spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Dict({"b": spaces.Box(-1, 1, (2,))}))]),
    ],
)
def test_a_space_comes_back_from_json(space: spaces.Space[Any]) -> None:
    back = space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False)))
    assert back == space
    batch = [space.sample() for _ in range(3)]
    for seen in batch:
        ours, alone = Layout(back, "x").read(seen)
        assert alone
        assert np.array_equal(ours, Layout(space, "x").read(seen)[0])


@pytest.fixture(scope="module")
def walker(houses_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, Path]:
    folder = tmp_path_factory.mktemp("walker") / "run"
    sizes = {"width": 16, "heads": 2}
    trained = apil.train(
        R2R(str(houses_data)), committee("twodifdetm"), "apil", folder=folder, options=sizes, **{**SMALL, "batch": 6}
    )
    return trained, folder


def test_an_agent_that_remembers_acts_in_episodes(walker: tuple[Trained, Path], tmp_path: Path) -> None:
    trained, folder = walker
    agent = apil.load(folder)
    agent.save(tmp_path / "agent")
    agent = apil.load(tmp_path / "agent")
    steps = steps_of(trained, 0, 3, "helped", greedy=True)
    with agent.episode(seed=0) as episode:
        for step in steps:
            decision = episode.act(step.seen)
            assert decision.policy.tolist() == step.belief.mean[0].tolist()
            live = step.live[0]
            assert decision.ask[live].tolist() == step.fired[0][live].tolist()
            given = step.answered[0].numpy()
            episode.answer(step.answer.action[0].numpy(), teacher="first", where=given)
            assert decision.action[~given].tolist() == step.action[0][~step.answered[0]].tolist()
    state: Any = None
    for number, step in enumerate(steps):
        actions, state = agent.predict(step.seen, state=state, episode_start=[number == 0] * 3, deterministic=True)
        own = step.belief.mean[0].argmax(-1)
        assert actions.tolist() == own.tolist()
    with pytest.raises(ApilError, match="Some episodes of the batch start while others continue"):
        agent.predict(steps[0].seen, state=state, episode_start=[True, False, False])
    with pytest.raises(ApilError, match="remembers the steps of an episode"):
        agent.act(steps[0].seen)


def test_data_that_moved_are_named_and_other_data_refused(
    walker: tuple[Trained, Path], houses_data: Path, made_up_data: Path, tmp_path: Path
) -> None:
    trained, folder = walker
    shutil.copytree(folder, tmp_path / "run")
    _json(lambda v: {**v, "own": {**v["own"], "data": str(tmp_path / "gone.safetensors")}})(tmp_path / "run")
    assert "does not exist" in refusal(tmp_path / "run")
    assert "apil.load(folder, data=...)" in refusal(tmp_path / "run")
    shutil.copy(houses_data, tmp_path / "moved.safetensors")
    agent = apil.load(tmp_path / "run", data=tmp_path / "moved.safetensors")
    seen = steps_of(trained, 0, 2, "alone", greedy=True)[0].seen
    with agent.episode(seed=0) as one, trained.agent.episode(seed=0) as other:
        assert same(one.act(seen), other.act(seen))
    with pytest.raises(ApilError, match="is not the data that the run was trained on"):
        apil.load(tmp_path / "run", data=made_up_data)


TOLERANCE = 1e-5
"""Of probabilities and scaled actions between torch and onnxruntime."""


def test_an_exported_policy_decides_as_the_agent_does(run: Path, tmp_path: Path) -> None:
    agent = apil.load(run)
    agent.export(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    seen = observations(300)
    given = {"features": agent.features(seen), "valid": seen.valid[0].numpy()}
    action, policy, identity = session.run(["action", "policy", "identity"], given)
    expected = agent.act(seen)
    assert np.abs(policy - expected.policy).max() < TOLERANCE
    assert np.abs(identity.T - list(expected.identity.values())).max() < TOLERANCE
    sure = np.sort(expected.policy, 1)[:, -1] - np.sort(expected.policy, 1)[:, -2] > 2 * TOLERANCE
    assert sure.sum() > 250
    assert np.array_equal(action[sure], expected.action[sure])
    about = json.loads(session.get_modelmeta().custom_metadata_map["agent.json"])
    assert about["action_names"] == ["up", "right", "down", "left"]


def test_an_exported_continuous_policy_decides_as_the_agent_does(tmp_path: Path) -> None:
    agent = apil.train(mountain(), pushes(), "bc", **{**SMALL, "iterations": 30, "learning_rate": 0.01}).agent
    agent.export(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    env = gymnasium.make("MountainCarContinuous-v0")
    batch = np.stack([env.observation_space.sample() for _ in range(200)])
    action, policy, identity = session.run(None, {"features": agent.features(batch)})
    expected = agent.act(batch)
    for ours, theirs in ((expected.action, action), (expected.policy, policy)):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() < TOLERANCE
    assert np.abs(identity.T - list(expected.identity.values())).max() < TOLERANCE


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[1] / "docs" / "guide" / "agent.md").read_text()
    monkeypatch.chdir(tmp_path)
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(program, "docs/guide/agent.md", "exec"), {"__name__": "guide"})
