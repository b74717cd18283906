"""`apil data`: the files of Room-to-Room, and generated houses in their place. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from annotated_types import Ge, Le

from apil.errors import plural
from apil.settings.record import Says, Seed, Text, record
from apil.terminal import print_columns, print_table, stages, wrote


@record
class DataR2R:
    """Check the public Room-to-Room files and compile them into one file; see docs/guide/r2r.md."""

    source: Annotated[Path, tyro.conf.arg(name="from")]
    """Folder with connectivity/, annotations/ and so on, with their packed archives (*.tar.xz), or both."""
    out: Path = Path("data/r2r")
    """Folder for r2r.safetensors."""
    image_features: Path | None = None
    """36-view image features: a .tsv file, or .h5 / .hdf5 with scan_viewpoint keys. Pooled to 8 directions."""
    text_model: Text | None = None
    """A language model that reads the instructions: minilm, if that is installed, or the folder of a BERT encoder."""

    def run(self) -> None:
        """`apil data r2r`"""
        from apil.r2r.compile import compile_world

        with stages() as tell:
            path = compile_world(self.source, self.out, tell, self.image_features, self.text_model)
        DataShow(path).run()
        wrote(path)


@record
class DataHouses:
    """Generate houses with paths and instructions in the formats of R2R, and compile them."""

    out: Path = Path("data/houses")
    """Folder for the raw files and r2r.safetensors; replaced if it holds generated houses, refused if anything else."""
    houses: Annotated[int, Ge(2), Le(10_000), Says("give 2 to 10,000: one at least is kept unseen for evaluation")] = 20
    """How many, about ten a second; the last fifth of them is kept unseen for evaluation."""
    seed: Seed = 0
    """Another seed gives other houses."""

    def run(self) -> None:
        """`apil data houses`"""
        from apil.r2r.houses_folder import write_houses
        from apil.r2r.world import World

        with stages() as tell:
            path = write_houses(self.out, self.houses, self.seed, tell)
        world = World.open(path)
        paths = ", ".join(f"{int(split.path_index.max()) + 1} {name}" for name, split in world.splits.items())
        print(f"{plural(len(world.scans), 'house')} with {plural(len(world.viewpoints), 'viewpoint')}; paths: {paths}")
        wrote(path)


@record
class DataShow:
    """Show what a compiled file holds."""

    data: tyro.conf.Positional[Path] = Path("data/r2r")
    """The file, or its folder."""

    def run(self) -> None:
        """`apil data show`"""
        from apil.r2r.inventory import GRAPHS, differences, is_official, summary
        from apil.r2r.layout import SPLITS
        from apil.r2r.world import World

        world = World.open(self.data)
        figures = summary(world)
        print_table("Graphs", figures[GRAPHS])
        print_columns("Splits", {name: figures[name] for name in world.splits})
        known = ("captions", "objects", "rooms", "glove", "images", "readings")
        lacking = [name for name in known if name not in world.features]
        print(f"Vocabulary: {len(world.vocabulary)} words. Features: {', '.join(world.features) or 'none'}")
        if lacking:
            print(f"Not in the raw files: {', '.join(lacking)} (docs/guide/r2r.md says where to get them)")
        if not world.vouched:
            print("No checksum, since an older apil compiled it: compile it again to have changes noticed on opening.")
        if world.unread:
            print(f"Not read: {', '.join(world.unread)} (splits are {', '.join(SPLITS)})")
        if is_official(world):
            found = [f"Not as published for R2R: {difference}" for difference in differences(figures)]
            print("\n".join(found) or "All figures are as published for R2R.")


COMMANDS = {"r2r": DataR2R, "houses": DataHouses, "show": DataShow}
"""The facet `commands` of R2R: subcommands of `apil data`."""
