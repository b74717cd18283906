"""Where to ask: a benchmark of query rules at equal numbers of answers, over tasks that each have a file."""
