"""Trainers: one module an algorithm, its mathematics readable from top to bottom.

``trainers.advantages`` is NumPy only and turns finished trajectories into advantages and value
targets; ``trainers.losses`` is PyTorch and turns those into a scalar to minimise.
"""
