"""What generated game files hold: ALFWorld's domain and grammar, and a problem's text.

The domain (what actions do) and the grammar (what they are called and what is said) mean what those
of the released games mean, oddities included; both engines take a generated game for a released
one. They are written out from tables, without what no command can reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache

from envs.alfworld.rules import HELP

__all__ = ["domain", "grammar", "problem"]

_PREDICATES = (
    "atLocation ?a - agent ?l - location",
    "receptacleAtLocation ?r - receptacle ?l - location",
    "objectAtLocation ?o - object ?l - location",
    "openable ?r - receptacle",
    "opened ?r - receptacle",
    "inReceptacle ?o - object ?r - receptacle",
    "isReceptacleObject ?o - object",
    "inReceptacleObject ?i - object ?o - object",
    "checked ?r - receptacle",
    "receptacleType ?r - receptacle ?t - rtype",
    "canContain ?rt - rtype ?ot - otype",
    "objectType ?o - object ?t - otype",
    "holds ?a - agent ?o - object",
    "holdsAny ?a - agent",
    *(
        f"{name} ?o - object"
        for name in (
            "isClean", "cleanable", "isHot", "heatable", "isCool", "coolable", "pickupable",
            "toggleable", "isOn", "isToggled", "sliceable", "isSliced",
        )
    ),
)  # fmt: skip

_AGENT = "?a - agent"
_AT = "(atLocation ?a ?l)"
_HERE = f"{_AT} (receptacleAtLocation ?r ?l)"
_OPEN = "(or (not (openable ?r)) (opened ?r))"
_STEP, _WORK = "(increase (total-cost) 1)", "(increase (total-cost) 5)"


def _treatment(flag: str, means: str, effect: str) -> tuple[str, str, str]:
    return (
        f"{_AGENT} ?l - location ?r - receptacle ?o - object",
        f"(and ({flag} ?o) (or {means}) {_HERE} (holds ?a ?o))",
        f"(and {_WORK} {effect})",
    )


#: Action to its parameters, precondition and effect.
_ACTIONS = {
    "look": (f"{_AGENT} ?l - location", f"(and {_AT})", "(and (checked ?l))"),
    "inventory": (_AGENT, "()", "(and (checked ?a))"),
    "examineReceptacle": (
        f"{_AGENT} ?r - receptacle",
        f"(and (exists (?l - location) (and {_HERE})))",
        "(and (checked ?r))",
    ),
    # The comma is the released domain's: it leaves things in the hand alone to be examined.
    "examineObject": (
        f"{_AGENT} ?o - object",
        f"(or (exists (?l - location, ?r - receptacle) (and {_HERE} (inReceptacle ?o ?r) {_OPEN}))"
        " (holds ?a ?o))",
        "(and (checked ?o))",
    ),
    "GotoLocation": (
        f"{_AGENT} ?lStart - location ?lEnd - location ?r - receptacle",
        "(and (atLocation ?a ?lStart) (receptacleAtLocation ?r ?lEnd))",
        f"(and (not (atLocation ?a ?lStart)) (atLocation ?a ?lEnd) {_STEP})",
    ),
    "OpenObject": (
        f"{_AGENT} ?l - location ?r - receptacle",
        f"(and (openable ?r) {_HERE} (not (opened ?r)))",
        f"(and (opened ?r) (checked ?r) {_STEP})",
    ),
    "CloseObject": (
        f"{_AGENT} ?l - location ?r - receptacle",
        f"(and (openable ?r) {_HERE} (opened ?r))",
        f"(and (not (opened ?r)) {_STEP})",
    ),
    "PickupObject": (
        f"{_AGENT} ?l - location ?o - object ?r - receptacle",
        f"(and (pickupable ?o) {_HERE} (inReceptacle ?o ?r) (not (holdsAny ?a)) {_OPEN})",
        "(and (not (inReceptacle ?o ?r)) (holds ?a ?o) (holdsAny ?a) (not (objectAtLocation ?o ?l))"
        f" {_STEP})",
    ),
    "PutObject": (
        f"{_AGENT} ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype",
        f"(and (holds ?a ?o) {_HERE} {_OPEN} (objectType ?o ?ot) (receptacleType ?r ?rt)"
        " (canContain ?rt ?ot))",
        "(and (inReceptacle ?o ?r) (objectAtLocation ?o ?l) (not (holds ?a ?o)) (not (holdsAny ?a))"
        f" {_STEP})",
    ),
    "CleanObject": _treatment(
        "cleanable",
        "(receptacleType ?r SinkType) (receptacleType ?r SinkBasinType)",
        "(isClean ?o)",
    ),
    "HeatObject": _treatment(
        "heatable", "(receptacleType ?r MicrowaveType)", "(isHot ?o) (not (isCool ?o))"
    ),
    "CoolObject": _treatment(
        "coolable", "(receptacleType ?r FridgeType)", "(isCool ?o) (not (isHot ?o))"
    ),
    "ToggleObject": (
        f"{_AGENT} ?l - location ?o - object ?r - receptacle",
        f"(and (toggleable ?o) {_HERE} (inReceptacle ?o ?r))",
        f"(and {_WORK} (when (isOn ?o) (not (isOn ?o))) (when (not (isOn ?o)) (isOn ?o))"
        " (isToggled ?o))",
    ),
    "SliceObject": (
        f"{_AGENT} ?l - location ?co - object ?ko - object",
        "(and (sliceable ?co) (or (objectType ?ko KnifeType) (objectType ?ko ButterKnifeType))"
        f" {_AT} (objectAtLocation ?co ?l) (holds ?a ?ko))",
        f"(and {_WORK} (isSliced ?co))",
    ),
    "help": (_AGENT, "()", "(and (checked ?a))"),
}
#: Types that the domain names; a problem must declare them whether it has such things or not.
_NAMED_TYPES = {
    "ButterKnifeType": "otype",
    "KnifeType": "otype",
    "FridgeType": "rtype",
    "MicrowaveType": "rtype",
    "SinkBasinType": "rtype",
    "SinkType": "rtype",
}


@cache
def domain() -> str:
    """The planning domain of every generated game."""
    lines = [
        "(define (domain alfred)",
        "(:requirements :adl :action-costs :typing)",
        "(:types agent location receptacle object rtype otype)",
        "(:predicates",
        *(f"    ({predicate})" for predicate in _PREDICATES),
        ")",
        "(:functions (distance ?from ?to) (total-cost) - number)",
    ]
    for name, (parameters, precondition, effect) in _ACTIONS.items():
        lines += [
            "",
            f"(:action {name}",
            f"    :parameters ({parameters})",
            f"    :precondition {precondition}",
            f"    :effect {effect}",
            ")",
        ]
    return "\n".join([*lines, ")", ""])


# The grammar -------------------------------------------------------------------------------------

_CONTENT = "[{o.indefinite + ' ' + o.name | inreceptacle(o:object, r:receptacle)}]"
_BESIDE = (
    "atlocation(a:agent, l:location) & objectatlocation(o:object, l:location) & "
    "receptacleatlocation(r:receptacle, l:location) & not_inreceptacle(o:object, r:receptacle)"
)
_STANDING = "atlocation(a:agent, l:location) & receptacleatlocation(r:receptacle, l:location)"
_FURNITURE = "receptacleatlocation(r:receptacle, l:location)"


def _state(name: str) -> str:
    return f"{name}(o:object)"


def _both(*names: str) -> str:
    return " & ".join(map(_state, names))


#: Rule to its alternatives, each a condition (empty for none) and what is said.
_RULES: dict[str, tuple[tuple[str, str], ...]] = {
    "intro": (("", "-= Welcome to TextWorld, ALFRED! =-\n\n#look.feedback#\n\n#task#"),),
    "GotoLocation.feedback": (("", "You arrive at {r.name}. #examineReceptacle.feedback#"),),
    "OpenObject.feedback": (("", "You open the {r.name}. #examineReceptacle.feedback#"),),
    "CloseObject.feedback": (("", "You close the {r.name}."),),
    "PickupObject.feedback": (("", "You pick up the {o.name} from the {r.name}."),),
    "PutObject.feedback": (("", "You move the {o.name} to the {r.name}."),),
    "inventory.feedback": (
        (
            "holdsany(a:agent)",
            "You are carrying: [{o.indefinite + ' ' + o.name | holds(a:agent, o:object)}].",
        ),
        ("", "You are not carrying anything."),
    ),
    "examineReceptacle.feedback": (
        (
            "openable(r:receptacle) & opened(r:receptacle)",
            f"The {{r.name}} is open. In it, you see {_CONTENT}.",
        ),
        ("openable(r:receptacle)", "The {r.name} is closed."),
        ("", f"On the {{r.name}}, you see {_CONTENT}."),
    ),
    "examineObject.feedback": (
        (
            _state("isreceptacleobject"),
            "This is a normal {o.name}. In it, you see "
            "[{o2.indefinite + ' ' + o2.name | inreceptacleobject(o2:object, o:object)}].",
        ),
        (_both("isclean", "ishot", "issliced"), "This is a hot and clean sliced {o.name}."),
        (_both("isclean", "iscool", "issliced"), "This is a cool and clean sliced {o.name}."),
        (_both("isclean", "issliced"), "This is a clean sliced {o.name}."),
        (_both("ishot", "issliced"), "This is a hot sliced {o.name}."),
        (_both("iscool", "issliced"), "This is a cool sliced {o.name}."),
        (_both("isclean", "ishot"), "This is a hot and clean {o.name}."),
        (_both("isclean", "iscool"), "This is a cool and clean {o.name}."),
        (_state("ishot"), "This is a hot {o.name}."),
        (_state("isclean"), "This is a clean {o.name}."),
        (_state("iscool"), "This is a cold {o.name}."),
        (_both("toggleable", "istoggled"), "This {o.name} is on."),
        (_both("toggleable", "not_istoggled"), "This {o.name} is off."),
        (_both("sliceable", "issliced"), "This is a sliced {o.name}."),
        ("", "There's nothing special about {o.name}."),
    ),
    "toggleObject.feedback": (
        (_both("toggleable", "istoggled"), "You turn on the {o.name}."),
        (_state("toggleable"), "You turn off the {o.name}."),
        ("", "You don't see any switch on the {o.name}."),
    ),
    **{
        f"{verb}Object.feedback": (("", f"You {verb} the {{o.name}} using the {{r.name}}."),)
        for verb in ("heat", "clean", "cool")
    },
    "sliceObject.feedback": (("", "You sliced the {co.name} with the {ko.name}."),),
    "look.feedback": (
        (_STANDING, "#look-variations#. Next to it, you see #list_objects_on_the_floor#."),
        (
            "",
            "You are in the middle of a room. Looking quickly around you, you see "
            "#list_appliances#.",
        ),
    ),
    "look-variations": (("", f"You are facing the [{{r.name | {_STANDING}}}]"),),
    "list_objects_on_the_floor": (
        (_BESIDE, f"[{{#overview(o)# | {_BESIDE}}}]"),
        ("", "nothing"),
    ),
    "list_appliances": (
        (_FURNITURE, f"[{{#overview(r)# | {_FURNITURE}}}]"),
        ("", "nothing"),
    ),
    "overview(o)": (("", "{o.indefinite} {o.name}"),),
    "overview(r)": (("", "{r.indefinite} {r.name or r.id}"),),
    "list_empty": (("", "nothing"),),
    "list_separator": (("", ", "),),
    "list_last_separator": (("", ", and "),),
}
#: Action to its command and to what is said.
_COMMANDS = {
    "GotoLocation": (
        "go to [{r.name | receptacleatlocation(r:receptacle, lend:location)}]",
        "GotoLocation",
    ),
    "OpenObject": ("open {r}", "OpenObject"),
    "CloseObject": ("close {r}", "CloseObject"),
    "PickupObject": ("take {o} from {r}", "PickupObject"),
    "PutObject": ("move {o} to {r}", "PutObject"),
    "inventory": ("inventory", "inventory"),
    "examineReceptacle": ("examine {r}", "examineReceptacle"),
    "examineObject": ("examine {o}", "examineObject"),
    "ToggleObject": ("use {o}", "toggleObject"),
    "HeatObject": ("heat {o} with {r}", "heatObject"),
    "CleanObject": ("clean {o} with {r}", "cleanObject"),
    "CoolObject": ("cool {o} with {r}", "coolObject"),
    "SliceObject": ("slice {co} with {ko}", "sliceObject"),
    "look": ("look", "look"),
}


def grammar(task: str) -> str:
    """The grammar of a game.

    Args:
        task: The line that states the task ("Your task is to: ...").
    """
    before, after = _grammar()
    return f"{before}{json.dumps(task)}{after}"


@cache
def _grammar() -> tuple[str, str]:
    mark = "TASK LINE"
    rules = {"intro": _RULES["intro"], "task": (("", mark),), **_RULES}
    listed = {
        name: [
            ({"condition": condition} if condition else {}) | {"rhs": said}
            for condition, said in alternatives
        ]
        for name, alternatives in rules.items()
    }
    lines = [f'grammar :: """\n{json.dumps(listed, indent=1)}\n""";\n']
    for name, (command, rule) in _COMMANDS.items():
        lines.append(_command(name, command, f"#{rule}.feedback#"))
    lines.append(_command("help", "help", f"\n{HELP}"))
    before, _, after = "\n".join(lines).partition(json.dumps(mark))
    return before, after


def _command(name: str, template: str, feedback: str) -> str:
    return f'action {name} {{\n    template :: "{template}";\n    feedback :: "{feedback}";\n}}\n'


def problem(name: str, kinds: Mapping[str, str], facts: Iterable[str], goal: str) -> str:
    """A planning problem.

    Args:
        name: Its name.
        kinds: Identifier to type, for everything the facts name but the types of the domain.
        facts: Facts without their parentheses.
        goal: The goal formula.
    """
    declared = "\n".join(
        f"    {thing} - {kind}" for thing, kind in {**_NAMED_TYPES, **kinds}.items()
    )
    stated = "\n".join(f"    ({fact})" for fact in facts)
    return (
        f"(define (problem {name})\n(:domain alfred)\n(:objects\n{declared}\n)\n"
        f"(:init\n{stated}\n)\n(:goal {goal})\n)\n"
    )
