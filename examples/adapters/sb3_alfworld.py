"""MaskablePPO on household tasks. ``pip install 'agentgym-suite[sb3]'``.

    python examples/adapters/sb3_alfworld.py [STEPS]

``python -m benchmarks.sb3_alfworld`` is the same with settings that learn, and baselines.
"""

import sys

from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy

from adapters.sb3 import ScoringPolicy, make

env = make("AlfWorld-v0", difficulty="small", max_actions=32)
model = MaskablePPO(ScoringPolicy, env, n_steps=256, gamma=0.95, seed=0, device="cpu")
model.learn(int(sys.argv[1]) if len(sys.argv) > 1 else 4096)
unseen = make("AlfWorld-v0", difficulty="small", max_actions=32, split="valid_unseen")
print("success in unseen rooms:", evaluate_policy(model, unseen, n_eval_episodes=20, warn=False)[0])
