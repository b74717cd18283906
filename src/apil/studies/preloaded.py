"""The last module that the process imports from which workers are forked (`workers.py`)."""

import gc

gc.freeze()  # what is imported lasts as long as the process: neither it nor its workers look for cycles in it
