"""Trainers: one module an algorithm, its mathematics readable from top to bottom.

``trainers.advantages`` is NumPy only and turns finished trajectories into advantages and value
targets; ``trainers.losses`` is PyTorch and turns those into a scalar to minimise.
"""

from agentgym.rooms import ROOMS, check_room

# Trainers import the other rooms directly: a foreign package of that name must not slip in.
for _room in ROOMS:
    check_room(_room)
