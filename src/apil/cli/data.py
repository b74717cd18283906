"""`apil data`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apil.cli.show import print_columns, print_table, stages, wrote
from apil.commands import DataHouses, DataR2R, DataShow

if TYPE_CHECKING:
    pass


def data_r2r(command: DataR2R) -> None:
    """`apil data r2r`"""
    from apil.r2r.compile import compile_world

    with stages() as tell:
        path = compile_world(command.source, command.out, tell, command.image_features, command.text_model)
    data_show(DataShow(path))
    wrote(path)


def data_houses(command: DataHouses) -> None:
    """`apil data houses`"""
    from apil.r2r.houses_folder import write_houses
    from apil.r2r.world import World

    with stages() as tell:
        path = write_houses(command.out, command.houses, command.seed, tell)
    world = World.open(path)
    paths = ", ".join(f"{int(split.path_index.max()) + 1} {name}" for name, split in world.splits.items())
    print(f"{len(world.scans)} houses with {len(world.viewpoints)} viewpoints; paths: {paths}")
    wrote(path)


def data_show(command: DataShow) -> None:
    """`apil data show`"""
    from apil.r2r.inventory import GRAPHS, differences, is_official, summary
    from apil.r2r.layout import SPLITS
    from apil.r2r.world import World

    world = World.open(command.data)
    figures = summary(world)
    print_table("Graphs", figures[GRAPHS])
    print_columns("Splits", {name: figures[name] for name in world.splits})
    lacking = [
        name for name in ("captions", "objects", "rooms", "glove", "images", "readings") if name not in world.features
    ]
    print(f"Vocabulary: {len(world.vocabulary)} words. Features: {', '.join(world.features) or 'none'}")
    if lacking:
        print(f"Not in the raw files: {', '.join(lacking)} (docs/guide/r2r.md says where to get them)")
    if world.unread:
        print(f"Not read: {', '.join(world.unread)} (splits are {', '.join(SPLITS)})")
    if is_official(world):
        told = [f"Not as published for R2R: {difference}" for difference in differences(figures)]
        print("\n".join(told) or "All figures are as published for R2R.")
