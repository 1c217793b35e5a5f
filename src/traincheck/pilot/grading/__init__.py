"""The private grader: every distinct source is run again in every scenario, and judged by its whole training state.

``observer`` runs inside a replayed training and writes what it was; ``comparison`` holds that against a program known
to be right; ``judging`` makes a verdict of it; ``grade`` does so for a case, ``qualify`` shows before any trial that
all of this tells right from wrong. Nothing here imports Inspect, and nothing here reaches an agent.
"""
