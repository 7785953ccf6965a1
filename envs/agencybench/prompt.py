"""What a policy reads and writes in AgencyBench."""

from __future__ import annotations

import json
from typing import Any

from agentgym.dice import Dice
from agentgym.info import Info
from agentgym.parsing import ParsedAction, parse_tags
from agentgym.prompts import EnvPrompt
from envs.agencybench.calls import Call, find_call
from envs.agencybench.catalogue import BUILTIN, builtin
from envs.agencybench.toolbox import TOOLS

__all__ = ["AgencyPrompt", "vocabulary"]

#: Longest text, in characters, that becomes one token.
_LONGEST_PHRASE = 400

_TASK = """\
You work on a sequence of tasks in a workspace: a folder in a sandbox without network. Use one \
tool \
a turn. What is built counts, not what you say: `submit` hands in the current task, which is then \
scored by hidden checks. You may have several attempts at a task, and {calls} calls in all.

{form}

Tools (`?` marks what may be left out):
{tools}"""

_TAGGED = """\
Think inside <think> </think>, then write one call as JSON inside <action> </action>:
<action>{"tool": "read_file", "arguments": {"path": "README.md"}}</action>"""


class AgencyPrompt(EnvPrompt):
    """Prompts for AgencyBench.

    The action is one tool call. ``tags`` asks for it inside ``<action>``; a call in another usual
    spelling (a fence, ``<tool_call>``) is taken too. ``bare``: no instructions, the text is the
    call.
    """

    def parse(self, text: str) -> ParsedAction:
        """The call in the model's text, and whether it is one that can be read."""
        if self.action_format == "bare":
            action = text.strip()
            return ParsedAction(action, isinstance(find_call(action), Call))
        thought, _, rest = text.rpartition("</think>")
        thought = thought.replace("<think>", "", 1).strip()
        stripped = rest.strip()
        if not stripped.startswith(("{", "<tool_call>", "```")) or "</think>" not in text:
            tagged = parse_tags(text)
            if tagged.format_ok:
                return ParsedAction(
                    tagged.action, isinstance(find_call(tagged.action), Call), tagged.thought
                )
        return ParsedAction(stripped, isinstance(find_call(stripped), Call), thought or None)

    def system(self, info: Info) -> str | None:
        """Instructions that open the conversation; nothing in the bare form."""
        if self.action_format == "bare":
            return None
        details = info["details"]
        left = details["calls_left"]
        return _TASK.format(
            calls="any number of" if left is None else left,
            form=_TAGGED,
            tools="\n".join(details["tools"]),
        )


def vocabulary(**env_args: Any) -> list[str]:
    """Phrases that should be single tokens of a tokenizer made for this environment.

    Beside the calls' fixed parts these are the texts that the oracle writes in every world of a
    scenario, so that a small model can write a call in a few tokens.

    Args:
        **env_args: Arguments of ``gym.make``; ``scenario`` matters.
    """
    calls = [f'{{"tool": "{name}", "arguments": {{' for name in TOOLS]
    names = sorted({f'"{name}": ' for spec in TOOLS.values() for name in spec.parameters})
    fixed = [*calls, *names, "}}", '", ', '"', "\\n", "[call ", " of "]
    wanted = env_args.get("scenario")
    ids = BUILTIN if wanted is None else [wanted] if isinstance(wanted, str) else wanted
    texts = [text for name in ids if name in BUILTIN for text in _written(name)]
    return list(dict.fromkeys([*fixed, *texts]))


def _written(scenario_id: str) -> list[str]:
    """What the oracle writes whatever the seed, as it stands in JSON."""
    scenario = builtin(scenario_id)
    if scenario.oracle is None:
        return []
    drawn = []
    for seed in range(2):
        world = scenario.build(Dice(f"vocabulary {seed}"))
        arguments = [
            value
            for task in range(len(scenario.tasks))
            for _, given in scenario.oracle(world, task)
            for value in given.values()
        ]
        drawn.append([value for value in arguments if isinstance(value, str)])
    spelled = [json.dumps(text, ensure_ascii=False)[1:-1] for text in drawn[0] if text in drawn[1]]
    return [text for text in spelled if text.strip() and len(text) <= _LONGEST_PHRASE]
