"""Which rules and wordings a game file carries, and how to change the wording.

A game file brings its own domain (what actions do) and grammar (what they are called and what is
said). The native engine implements those of ALFWorld; a file with others is refused, so that what
is played natively is what the original would play. Both are recognised by a digest of their
structure: comments, layout, costs and the game's own task line do not count, nor does what no
command can reach.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from envs.alfworld.pddl import GameError, Tree, read_tree

__all__ = [
    "RELEASED",
    "CommandStyle",
    "DomainRules",
    "Wording",
    "domain_rules",
    "restyle",
    "task_line",
    "wording",
]

#: How an object is put down: ``move X to Y`` (ALFWorld 0.4) or ``put X in/on Y`` (0.3).
CommandStyle = Literal["move", "put"]

#: What ``help`` answers; the wording ``put`` has no such command.
HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


@dataclass(frozen=True, slots=True)
class DomainRules:
    """Where domains that the native engine plays differ.

    Attributes:
        washing: Receptacle types that objects can be cleaned with.
    """

    washing: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wording:
    """What a grammar says.

    Attributes:
        task: The line that states the task.
        style: How an object is put down.
    """

    task: str
    style: CommandStyle


#: The rules of the released games.
RELEASED = DomainRules(frozenset(("sinktype", "sinkbasintype")))
#: Digests of the domains that the native engine plays: the one in the released game files (0.4)
#: with and without ``help``, and the one in the package (0.3 and 0.4), where a sink is no basin.
_DOMAINS = {
    "1aa46b4c3604bd76f2290d5d46891f7e": RELEASED,
    "bfe8e94d7a27a2e6acb25b8b2f78779a": RELEASED,
    "9fca9c886d722e40daf4116b62487388": DomainRules(frozenset(("sinkbasintype",))),
    "1ac88e24be091b2a72a30f7e08fd2a60": DomainRules(frozenset(("sinkbasintype",))),
}
#: Digests of the grammars.
_GRAMMARS: dict[str, CommandStyle] = {
    "8ebda49560872914e06a5bd0ff7b3429": "move",
    "4316ebc16331f54d6068c285b2e063ed": "put",
}

_checked_domains: dict[str, DomainRules] = {}
_checked_grammars: dict[str, CommandStyle] = {}

_TASK = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*")')
_BLOCK = re.compile(r'grammar\s*::\s*"""(.*?)"""', re.DOTALL)
_ACTION = re.compile(
    r'action\s+([\w/-]+)\s*\{\s*template\s*::\s*"([^"]*)"\s*;\s*feedback\s*::\s*"([^"]*)"\s*;'
)
_RULE = re.compile(r"#([^#\s]+)#")
_LIST_RULES = ("list_empty", "list_separator", "list_last_separator")
_ACTIONS = frozenset((
    "gotolocation", "openobject", "closeobject", "pickupobject", "putobject", "inventory",
    "examinereceptacle", "examineobject", "toggleobject", "heatobject", "cleanobject",
    "coolobject", "sliceobject", "look", "help",
))  # fmt: skip


def domain_rules(text: str) -> DomainRules:
    """The rules of a domain that the native engine plays.

    Raises:
        GameError: If it is not one of those.
    """
    known = _checked_domains.get(text)
    if known is None:
        known = _DOMAINS.get(domain_digest(text))
        if known is None:
            raise GameError(
                "its pddl_domain is not ALFWorld's, which is what the native engine plays; "
                "engine='textworld' plays any"
            )
        _checked_domains[text] = known
    return known


def wording(grammar: str) -> Wording:
    """The task line and the style of a grammar that the native engine speaks.

    Raises:
        GameError: If it has no task line, or is not one of those.
    """
    found = _find_task(grammar)
    style = _style(grammar, found)
    if style is None:
        raise GameError(
            "its grammar is not ALFWorld's (0.3 or 0.4), which is what the native engine "
            "speaks; engine='textworld' speaks any"
        )
    return Wording(json.loads(found[1]), style)


def task_line(grammar: str) -> str:
    """The line that states the task, in any grammar that has one.

    Raises:
        GameError: If it has none.
    """
    line: str = json.loads(_find_task(grammar)[1])
    return line


def _find_task(grammar: str) -> re.Match[str]:
    found = _TASK.search(grammar)
    if found is None:
        raise GameError('its grammar has no rule "task" with the line that states the task')
    return found


def _style(grammar: str, task: re.Match[str]) -> CommandStyle | None:
    """The style of a grammar, or None for an unknown one."""
    rest = grammar[: task.start(1)] + grammar[task.end(1) :]
    style = _checked_grammars.get(rest) or _GRAMMARS.get(grammar_digest(grammar))
    if style is not None:
        _checked_grammars[rest] = style
    return style


def domain_digest(text: str) -> str:
    """Digest of what the actions of a domain do."""
    text = "\n".join(line.partition(";")[0] for line in text.lower().split("\n"))
    actions = sorted(
        json.dumps(_without_costs(part))
        for part in read_tree(text)
        if not isinstance(part, str) and part and part[0] == ":action"
    )
    return _digest(actions)


def grammar_digest(text: str) -> str:
    """Digest of a grammar's commands and of the rules that they reach."""
    rules: dict[str, Any] = {}
    for block in _BLOCK.findall(text):
        lines = (line for line in block.split("\n") if not line.lstrip().startswith("#"))
        try:
            rules.update(json.loads("\n".join(lines)))
        except ValueError as error:
            raise GameError(f"a block of rules in its grammar is not JSON: {error}") from None
    rules.pop("task", None)
    actions = {}
    for name, template, feedback in _ACTION.findall(text):
        if name.lower() not in _ACTIONS:  # the domain has no such action
            continue
        if feedback == "#help.feedback#" and feedback[1:-1] in rules:
            feedback = rules[feedback[1:-1]][0]["rhs"]
        actions[name.lower()] = (template, feedback.strip())
    reached: dict[str, Any] = {}
    pending = ["intro", *_LIST_RULES, *_RULE.findall(json.dumps(sorted(actions.items())))]
    while pending:
        name = pending.pop()
        if name in rules and name not in reached:
            reached[name] = rules[name]
            pending += _RULE.findall(json.dumps(rules[name]))
    return _digest([actions, reached])


def _without_costs(tree: Tree) -> Tree:
    if isinstance(tree, str):
        return tree
    return [
        _without_costs(part)
        for part in tree
        if not (isinstance(part, list) and part and part[0] == "increase")
    ]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _without(text: str, start: str, brackets: tuple[str, str]) -> str:
    """The text without the bracketed block that begins where ``start`` is found."""
    found = re.search(start, text)
    if found is None:
        return text
    opening, closing = brackets
    depth, at = 0, text.index(opening, found.start())
    while at < len(text):
        depth += (text[at] == opening) - (text[at] == closing)
        at += 1
        if depth == 0:
            return text[: found.start()] + text[at:]
    return text


_DOMAIN_HELP = """
(:action help
    :parameters (?a - agent)
    :precondition ()
    :effect (and (checked ?a))
)
"""
_GRAMMAR_HELP = f'\naction help {{\n    template :: "help";\n    feedback :: "\n{HELP}";\n}}\n'
# What the two styles say, in the grammar's own notation.
_MOVE_TO_PUT = (
    ('template :: "move {o} to {r}"', 'template :: "put {o} in/on {r}"'),
    ('"You move the {o.name} to the {r.name}."', '"You put the {o.name} in/on the {r.name}."'),
    ('"You arrive at {r.name}. ', '"You arrive at {lend.name}. '),
)


def restyle(game: Mapping[str, Any], style: CommandStyle) -> dict[str, Any]:
    """A game file's content with the wording of ``style``, for the original engine to play.

    A grammar whose wording is unknown is left as it is.

    Raises:
        GameError: If the grammar has no task line.
    """
    domain, grammar = game["pddl_domain"], game["grammar"]
    if _style(grammar, _find_task(grammar)) in (style, None):
        return dict(game)
    for move, put in _MOVE_TO_PUT:
        grammar = grammar.replace(move, put) if style == "put" else grammar.replace(put, move)
    if style == "put":
        grammar = _without(grammar, r"\baction\s+help\s*\{", ("{", "}"))
        domain = _without(domain, r"\(\s*:action\s+help\b", ("(", ")"))
    else:
        grammar += _GRAMMAR_HELP
        domain = domain.rstrip().removesuffix(")") + _DOMAIN_HELP + ")\n"
    if wording(grammar).style != style:
        raise GameError(f"the grammar could not be put into the style {style!r}")
    return dict(game) | {"pddl_domain": domain, "grammar": grammar}
