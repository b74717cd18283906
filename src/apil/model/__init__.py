"""What is learned: who is likely to answer, each teacher's persona, and a policy conditioned on it."""
