"""The command line. Parsing imports nothing heavy; each command imports what it needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import tyro

from apil.cli.data import data_houses, data_r2r, data_show
from apil.cli.evaluation import evaluate
from apil.cli.other import doctor, export, replay, show_list
from apil.cli.studying import calibrate, study
from apil.cli.training import train
from apil.commands import (
    Calibrate,
    Command,
    DataHouses,
    DataR2R,
    DataShow,
    Doctor,
    Evaluate,
    Export,
    List,
    Replay,
    Study,
    Train,
)
from apil.errors import ApilError


def main() -> None:
    """Entry point of `apil`."""
    command: Any = None
    try:
        command = tyro.cli(Command, prog="apil", description=__doc_cli__)
        _CARRIED_OUT[type(command)](command)
    except ApilError as error:
        print(f"apil: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, MemoryError) as error:
        print(f"apil: {str(error) or 'out of memory'}. Check space, memory and permissions.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        same = "what is finished is kept, and the same command goes on from there."
        on = f"go on with: apil train --resume {command.resume or command.out}" if isinstance(command, Train) else same
        print(f"apil: stopped at once; {on}", file=sys.stderr)
        sys.exit(130)


__doc_cli__ = "Train an agent from several teachers who disagree, and ask them only when asking helps."


_CARRIED_OUT: dict[type, Callable[[Any], None]] = {
    Train: train,
    Evaluate: evaluate,
    Study: study,
    Calibrate: calibrate,
    Replay: replay,
    DataR2R: data_r2r,
    DataHouses: data_houses,
    DataShow: data_show,
    Export: export,
    Doctor: doctor,
    List: show_list,
}
"""What each command does."""
