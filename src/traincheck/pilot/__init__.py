"""The diagnosis pilot study: does optional access to TrainCheck help agents repair real training failures?

docs/pilot.md says how it is done. Nothing here imports Inspect but ``traincheck.pilot.inspecting``.
"""
