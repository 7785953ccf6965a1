"""The environments that ship with the suite."""

from __future__ import annotations

from agentgym.registry import EnvSpec, register

_BUILTIN = (
    EnvSpec(
        id="AlfWorld-v0",
        env="envs.alfworld.env:AlfWorldEnv",
        prompt="envs.alfworld.prompt:AlfWorldPrompt",
        oracle="envs.alfworld.expert:demonstrate",
        vocabulary="envs.alfworld.prompt:vocabulary",
        baselines="envs.alfworld.baselines:baselines",
        abstractions={
            "paper": "envs.alfworld.progress:PaperProgress",
            "compact": "envs.alfworld.progress:CompactProgress",
        },
        variants="envs.alfworld.expert:practice_games",
        tiny={"difficulty": "small"},
        tiny_cloning={
            "slips": 0.0,  # noise alone shows refused commands enough
            "batch_size": 16,
            "updates": 950,
            "learning_rate": 6e-3,
            "warmup": 30,
            "decay_to": 0.05,
            "observation_weight": 0.2,
        },
        tiny_training={
            "trajectories": 128,  # tasks differ more than in the shop
            "minibatches": 4,
            "critic_updates": 1,
            "steps": 120,
            "decay_steps": 120,
            "eval_every": 40,
            "invalid_penalty": 0.1,
            "adv_eps": 0.1,  # or a group that fails would be taught by the penalty alone
            "eval_also": ("valid_seen",),
        },
    ),
    EnvSpec(
        id="WebShop-v0",
        env="envs.webshop.env:WebShopEnv",
        prompt="envs.webshop.prompt:WebShopPrompt",
        oracle="envs.webshop.oracle:demonstrate",
        vocabulary="envs.webshop.prompt:vocabulary",
        baselines="envs.webshop.baselines:baselines",
        abstractions={
            "paper": "envs.webshop.progress:FrontierProgress",
            "compact": "envs.webshop.progress:CompactProgress",
        },
        variants="envs.webshop.oracle:practice_shops",
        diagnostics={"first_result_share": "first_result"},
        tiny={"difficulty": "small", "observation_mode": "text"},
    ),
    EnvSpec(
        id="MathReasoning-v0",
        env="envs.math_reasoning.env:MathReasoningEnv",
        prompt="envs.math_reasoning.prompt:MathPrompt",
        oracle="envs.math_reasoning.oracle:demonstrate",
        abstractions={"compact": "envs.math_reasoning.progress:MathProgress"},
        vocabulary="envs.math_reasoning.prompt:vocabulary",
        diagnostics={"answered": "answered"},
        tiny={"difficulty": "small", "steps": (3, 3), "max_number": 20},
        tiny_cloning={
            "noise": 0.6,
            "slips": 0.0,  # there is one answer, and nothing to go on after
            "worlds": 1,
            "batch_size": 16,
            "updates": 1500,
            "max_action_tokens": 40,
        },
        tiny_training={
            "max_action_tokens": 40,
            "eval_every": 50,
            "learning_rate": 7e-4,
            "guidance_length": 16,  # two steps of three, and the beginning of the last
            # Few of 64 rollouts succeed at first, so that rates are noisy. At a bound that bites,
            # every dip of success would leave guidance shorter for good.
            "guidance_longest": 64,
            "guidance_window": 5,
        },
    ),
    EnvSpec(
        id="CodeReasoning-v0",
        env="envs.code_reasoning.env:CodeReasoningEnv",
        prompt="envs.code_reasoning.prompt:CodePrompt",
        oracle="envs.code_reasoning.oracle:demonstrate",
        vocabulary="envs.code_reasoning.prompt:vocabulary",
        baselines="envs.code_reasoning.baselines:baselines",
        diagnostics={"answered": "answered"},
        tiny={"difficulty": "small"},
        tiny_cloning={"episodes": 1000, "noise": 0.3, "updates": 500},
    ),
    EnvSpec(
        id="AgencyBench-v0",
        env="envs.agencybench.env:AgencyBenchEnv",
        prompt="envs.agencybench.prompt:AgencyPrompt",
        oracle="envs.agencybench.oracle:demonstrate",
        vocabulary="envs.agencybench.prompt:vocabulary",
        abstractions={"compact": "envs.agencybench.progress:AgencyProgress"},
        metrics="envs.agencybench.report:metrics",
        diagnostics={"tasks_passed": "tasks_passed", "coverage": "coverage"},
        # The first task takes ten replacements; with one more call, a detour costs a mended fault.
        tiny={"scenario": "code/units", "max_steps": 11},
        tiny_cloning={
            "episodes": 12,  # all write the same calls, and a score costs a process or two
            "noise": 0.2,
            "slips": 0.0,
            "worlds": 1,
            "updates": 110,
            "warmup": 10,
            "max_action_tokens": 40,
        },
        tiny_training={
            "trajectories": 16,
            "minibatches": 1,
            "critic_updates": 1,
            "learning_rate": 2e-4,
            "steps": 12,
            "decay_steps": 12,
            "invalid_penalty": 0.1,
            "max_action_tokens": 40,
            "eval_every": 0,
            "eval_episodes": 8,
        },
    ),
)


def register_builtin() -> None:
    """Register every built-in environment."""
    for entry in _BUILTIN:
        register(entry)
