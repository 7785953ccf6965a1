"""Which domains and grammars are known, and how a grammar is put into the other wording."""

from __future__ import annotations

import pytest

from envs.alfworld.pddl import GameError
from envs.alfworld.rules import (
    RELEASED,
    domain_digest,
    domain_rules,
    grammar_digest,
    restyle,
    task_line,
    wording,
)

DOMAIN = """
(define (domain d)
 (:predicates (p ?a) ; one
 )
 (:action a :parameters (?x) :precondition (p ?x) :effect (and (q ?x) (increase (cost) 1)))
 (:action b :parameters (?x) :precondition () :effect (and (p ?x)))
)
"""
GRAMMAR = '''
grammar :: """
    {
        "intro": [{"rhs": "Hello. #look.feedback# #task#"}],
        "task": [{"rhs": "Your task is to: say \\"hi\\"."}],
        "unused": [{"rhs": "never said"}]
    }
""";

action look {
    template :: "look";
    feedback :: "#look.feedback#";

    grammar :: """
        {
            "look.feedback": [{"rhs": "You see nothing."}]
        }
    """;
}

action fly {
    template :: "fly";
    feedback :: "You fly.";
}
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("; one", "; another remark"),
        ("(increase (cost) 1)", "(increase (cost) 5)"),
        ("(increase (cost) 1)", ""),
        (" (p ?a)", "(p ?a) (r ?b)"),
        ("(:action a", "(:action A"),
        ("(q ?x)", "(q\n   ?x )"),
    ],
)
def test_what_does_not_count_in_a_domain(old, new):
    assert old in DOMAIN
    assert domain_digest(DOMAIN.replace(old, new)) == domain_digest(DOMAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(q ?x)", "(not (q ?x))"),
        ("(:action b", "(:action c"),
        ("(?x) :precondition ()", "(?y) :precondition ()"),
    ],
)
def test_what_counts_in_a_domain(old, new):
    assert old in DOMAIN
    assert domain_digest(DOMAIN.replace(old, new)) != domain_digest(DOMAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("say ", "shout "),
        ("never said", "never heard"),
        ('"fly"', '"flee"'),
        ("    {\n", "{\n\n"),
        ('[{"rhs": "You see', '[ { "rhs" : "You see'),
    ],
)
def test_what_does_not_count_in_a_grammar(old, new):
    assert old in GRAMMAR
    assert grammar_digest(GRAMMAR.replace(old, new)) == grammar_digest(GRAMMAR)


@pytest.mark.parametrize(
    ("old", "new"), [("Hello", "Hi"), ("You see", "You hear"), ('"look";', '"watch";')]
)
def test_what_counts_in_a_grammar(old, new):
    assert old in GRAMMAR
    assert grammar_digest(GRAMMAR.replace(old, new)) != grammar_digest(GRAMMAR)


def test_other_domains_and_grammars_are_refused():
    with pytest.raises(GameError, match="pddl_domain is not ALFWorld's"):
        domain_rules(DOMAIN)
    with pytest.raises(GameError, match="grammar is not ALFWorld's"):
        wording(GRAMMAR)
    with pytest.raises(GameError, match="not JSON"):
        wording(GRAMMAR.replace('"unused":', "unused:"))
    assert task_line(GRAMMAR) == 'Your task is to: say "hi".'
    with pytest.raises(GameError, match='no rule "task"'):
        task_line("action look {}")


def test_an_unknown_grammar_is_not_reworded():
    game = {"pddl_domain": DOMAIN, "grammar": GRAMMAR, "pddl_problem": "", "walkthrough": []}
    assert restyle(game, "put") == game


@pytest.mark.data
def test_official_games_in_both_wordings(games):
    game = dict(games.game(games.tasks.ids("valid_seen")[0]))
    assert domain_rules(game["pddl_domain"]) == RELEASED
    assert wording(game["grammar"]).style == "move"
    assert restyle(game, "move") == game
    older = restyle(game, "put")
    assert wording(older["grammar"]).style == "put"
    assert wording(older["grammar"]).task == wording(game["grammar"]).task
    assert domain_rules(older["pddl_domain"]) == RELEASED
    assert "action help" not in older["grammar"] + older["pddl_domain"]
    assert restyle(older, "put") == older
    back = restyle(older, "move")
    assert wording(back["grammar"]).style == "move"
    assert domain_digest(back["pddl_domain"]) == domain_digest(game["pddl_domain"])
    assert grammar_digest(back["grammar"]) == grammar_digest(game["grammar"])
