"""What can be set of R2R: its data, what the agent sees, its sizes, and presets of all of them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Le

from apil.errors import ApilError, unknown_name
from apil.settings.record import Distance, Option, Rate, Says, Size, Text, Whole, described, record
from apil.studies.text import texts
from apil.tasks.options import Resolved

if TYPE_CHECKING:
    from apil.r2r.task import R2R

FEATURES = ("geometry", "captions", "objects", "rooms", "images")
"""What an agent can see; geometry it always sees."""
_Layers = Annotated[int, Ge(1), Le(24), Says("give a whole number from 1 to 24")]


@record
class InstructionSizes:
    """Sizes of the state encoder; the defaults are those of the desk preset."""

    width: Annotated[int, Ge(1), Le(2048), Says("give a whole number from 1 to 2,048")] = 128
    """d, of every token, candidate and state."""
    text_layers: _Layers = 1
    """Of the encoder of instructions; it has none where a language model has read them."""
    step_layers: _Layers = 2
    """Of the decoder over the steps of an episode."""
    heads: _Layers = 4
    """Of attention; divides the width."""
    words: Size = 64
    """Longer instructions are cut."""
    branch_dropout: Rate = 0.0
    """Of the branches of the transformer, in learning."""
    word_dropout: Rate = 0.1
    """Of words of the instruction, in learning."""
    shown_dropout: Rate = 0.2
    """Of the words that are shown, in learning: so that it is not learned what a house looks like."""
    view_dropout: Rate = 0.1
    """Of the vectors of directions, in learning."""
    mirror: Rate = 0.5
    """The share of the episodes that are learned from in a mirror: left and right change places, in what is seen and
    in what is read."""
    distance_weight: Distance = 0.2
    """Of the distance that the teachers give, predicted from the state by squared error (in tens of metres), in the
    policy's loss; 0 for none."""
    persona_gate: bool = False
    """A persona also scales every number of the state before the policy reads it, so that teachers may differ in what
    they make of a state; without, in what they like everywhere."""
    features: Text = "captions,objects,rooms"
    """What the agent sees beside the geometry of exits: some of captions, objects, rooms, images, joined by commas; or
    geometry. What the data lack is left out unless it was asked for."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ApilError(f"width {self.width} is not a multiple of heads {self.heads}: choose one that is.")
        for name in self.features.split(","):
            if name not in FEATURES:
                raise ApilError(f"There is no feature '{name}': give some of {', '.join(FEATURES)}, joined by commas.")


@record
class R2RArguments(InstructionSizes):
    """All that can be given for R2R."""

    data: Text = ""
    """The folder or file made by `apil data r2r` or `apil data houses`; generated houses if not given."""
    preset: Literal["desk", "paper"] = "desk"
    """Sizes and length of a run, for a desk (minutes) or the paper's."""
    reading: Literal["closer", "literal"] = "closer"
    """Reference actions also come closer to the goal, or the paper's words taken literally."""
    held_out: Whole = 0
    """Train scans that are kept out of training, as the split held_out, to choose hyperparameters on."""
    horizon: Annotated[int, Ge(1), Le(1000), Says("give a number of steps from 1 to 1000")] = 10
    """Steps after which an episode ends."""


_USUAL_PLACE = "data/r2r"
_PLACE = ("data", "horizon", "reading", "held_out")
_TASK = (*_PLACE, "digest", "tables")


class R2ROptions:
    """The facet `options` of R2R."""

    arguments: type = R2RArguments
    places: tuple[str, ...] = ("data",)

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """The preset, what was given, and the digest and checksum of the data, which guard against others on resume."""
        from apil.r2r.task import R2R

        all_of_it = R2RArguments(**given)
        preset = PRESETS[all_of_it.preset]
        place: dict[str, Any] = {name: getattr(all_of_it, name) for name in _PLACE}
        typed = {name: value for name, value in given.items() if name not in (*_PLACE, "preset")}
        encoder = {**preset.sizes, "features": all_of_it.features, **typed}
        InstructionSizes(**encoder)
        world = R2R(**place).world
        # A feature that was asked for by name must be in the data.
        for name in all_of_it.features.split(",") if "features" in given else ():
            if name not in ("geometry", *world.features):
                how = "with --image-features" if name == "images" else f"files with {name} (docs/guide/r2r.md)"
                raise ApilError(f"The data have no {name}: compile {how}, or leave it out of --features.")
        notice = "No --data: the agent lives in generated houses (made on first use); see docs/guide/r2r.md."
        options = {**place, "digest": world.digest, "tables": world.tables, **encoder}
        learning = {**preset.learning, "options": {**options, **preset.learning_sizes, **typed}}
        return Resolved(options, preset.settings, "" if all_of_it.data else notice, learning)

    def identity(self, options: Mapping[str, Option]) -> Mapping[str, Option]:
        """With the digest of the data instead of where they lie. Their checksum guards, and does not name: data
        that were compiled before there was one are the same."""
        named = {name: value for name, value in options.items() if name != "tables"}
        return {**named, "data": _USUAL_PLACE} if options.get("digest") else named

    def make(self, options: Mapping[str, Option]) -> R2R:
        """The task."""
        from apil.r2r.task import R2R

        sizes_of(options)
        place: dict[str, Any] = {name: value for name, value in options.items() if name in _TASK}
        R2RArguments(**{name: value for name, value in place.items() if name in _PLACE})
        return R2R(**place)


OPTIONS = R2ROptions()


def sizes_of(options: Mapping[str, Option]) -> InstructionSizes:
    """The sizes of the state encoder among the saved options of a run."""
    known = set(described(InstructionSizes))
    for name in options:
        if name not in (*known, *_TASK):
            raise unknown_name("option of the task 'r2r'", name, (*known, *_TASK))
    sizes: dict[str, Any] = {name: value for name, value in options.items() if name in known}
    return InstructionSizes(**sizes)


class Preset(NamedTuple):
    """Settings that go together."""

    settings: dict[str, Any]
    """Of a run."""
    learning: dict[str, Any]
    """Of a run that learns from a store of answers, instead of some of these; not of a run as printed."""
    sizes: dict[str, Any]
    """Of the state encoder, where they differ from their defaults."""
    learning_sizes: dict[str, Any]
    """The same of a run that learns from a store."""


PRESETS = {
    name: Preset(own["settings"], own.get("learning", {}), own["sizes"], own.get("learning_sizes", {}))
    for name, own in texts("presets.toml", "apil.r2r").items()
}
"""By name."""
