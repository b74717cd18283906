"""apil: train an agent from several teachers who disagree, and ask them only when asking helps."""

__version__ = "0.1.0"
