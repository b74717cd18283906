"""Episodes of a trained agent to look at: who acted, where it asked, which teacher answered what."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CalledProcessError
from textwrap import wrap
from typing import Any

from apil.errors import ApilError
from apil.files import beside
from apil.learning.collect import Agents, Step, collect
from apil.types import Picture

_COLOURS = {".": "#f4f4f4", "#": "#4d4d4d", "G": "#f0c808", "A": "#0072b2", "o": "#009e73"}
_ASKING = "#d55e00"
_TRIED = 20
"""Episodes that are looked through for some with questions."""


@dataclass(frozen=True)
class Frame:
    episode: int
    step: int
    picture: Picture
    answered: bool
    caption: str


def frames(agents: Agents, episodes: int, first: int | None = None) -> list[Frame]:
    """`episodes` episodes with help where the run's query policy asks for it.

    Their numbers start at `first`; if that is not given, those with questions among the first 20 come first.
    """
    chosen: list[list[Frame]] = []
    spare: list[list[Frame]] = []
    for number in itertools.count(first or 0):
        made = _episode(agents, number)
        (chosen if first is not None or any(frame.answered for frame in made) else spare).append(made)
        if len(chosen) == episodes or len(chosen + spare) == max(_TRIED, episodes):
            break
    return [frame for made in (chosen + spare)[:episodes] for frame in made]


def _episode(agents: Agents, episode: int) -> list[Frame]:
    """The steps of one episode; the same number is the same start."""
    members = agents.teachers[0].name.split("+")
    made: list[Frame] = []
    task = agents.task

    def watch(state: Any, step: Step) -> None:
        if bool(step.live[0, 0]):
            number = task.horizon - step.belief.remaining
            caption = _caption(step, members, task.action_names)
            answered = bool(step.answered[0, 0])
            made.append(Frame(episode, number, task.picture(state, 0, 0), answered, caption))

    end = collect(agents, episode, 1, "helped", "replay/", watch=watch)
    result = "reached the goal" if bool(end.success[0, 0]) else f"ended {float(end.final_distance[0, 0]):g} away"
    made[-1] = replace(made[-1], caption=f"{made[-1].caption}; {result}")
    return made


def _caption(step: Step, members: list[str], names: tuple[str, ...]) -> str:
    action, mean = step.action[0, 0], step.belief.mean[0, 0]
    if step.belief.drawn is None:
        did, chance = names[int(action)], f"chance {float(mean[int(action)]):.2f}"
    else:
        numbers, spread = (", ".join(f"{n:.2f}" for n in part.tolist()) for part in (action, mean[len(action) :]))
        did, chance = f"[{numbers}]", f"deviation [{spread}], scaled"
    if not bool(step.answered[0, 0]):
        return f"agent: {did} (its {chance})"
    identity, distance = int(step.answer.identity[0, 0]), float(step.answer.distance[0, 0])
    return f"asked; teacher {identity} ({members[identity]}): {did}, {distance:g} to go (agent's {chance})"


def save_movie(shown: list[Frame], path: Path) -> None:
    """Writes the frames as a GIF or, where ffmpeg is installed, as an MP4."""
    from matplotlib.animation import writers
    from matplotlib.figure import Figure

    kind = path.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise ApilError(f"{path} is neither .gif nor .mp4: give one of these endings.")
    if kind == ".mp4" and not writers.is_available("ffmpeg"):
        raise ApilError("MP4 needs the program ffmpeg, which is not installed: install it, or write a .gif.")
    if not path.parent.is_dir():
        raise ApilError(f"The folder {path.parent} does not exist: create it, or choose another --out.")
    figure = Figure(figsize=(4.4, 4.8), layout="constrained")
    panel = figure.add_subplot()
    writer = writers["pillow" if kind == ".gif" else "ffmpeg"](fps=2)
    try:
        with beside(path, path.suffix) as new, writer.saving(figure, str(new), dpi=100):
            for frame in shown:
                _draw(panel, frame)
                writer.grab_frame()
    except CalledProcessError as error:
        raise ApilError(
            f"Cannot write {path}: ffmpeg failed ({error.returncode}). Check space, or write a .gif."
        ) from error


def _draw(panel: Any, frame: Frame) -> None:
    from matplotlib.colors import to_rgb

    panel.clear()
    panel.axis("off")
    if frame.picture.cells:
        colours = {**_COLOURS, "A": _ASKING} if frame.answered else _COLOURS
        board = [[to_rgb(colours[cell]) for cell in row] for row in frame.picture.cells]
        panel.pcolormesh(board, edgecolors="white", linewidth=2)
        panel.invert_yaxis()
        panel.set_aspect("equal")
    elif frame.picture.pixels is not None:
        panel.imshow(frame.picture.pixels)
    else:
        panel.text(0.5, 0.5, "\n".join(wrap(frame.picture.text, 40)), ha="center", va="center", fontsize=9)
    caption = frame.caption.replace("; ", ";\n")
    panel.set_title(f"episode {frame.episode}, step {frame.step}\n{caption}", fontsize=9)
