"""Strict rules: each fault of the original that they repair has a test here."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = "Instruction:\n{goal}\n[button] Back to Search [button_]\n"


def test_pages_in_text_rich(open_session):
    session = open_session()
    goal = session.goal.instruction
    assert session.observe("text_rich") == (
        f"WebShop\nInstruction: \n{goal}\n[button] Search [button_]\n"
    )
    assert session.act("search[brass]") is None
    assert session.observe("text_rich") == (
        HEAD.format(goal=goal) + "Page 1 (Total results: 1)\n"
        "\n[button] B00000000A [button_]\nBrass Lamp\n$10.0 to $30.0\n"
    )
    assert session.act("click[B00000000A]") is None
    item = session.observe("text_rich")
    assert item == (
        HEAD.format(goal=goal) + "[button] < Prev [button_]\n"
        "color\n"
        '  [button] 24" wide [button_]\n'
        "  [button] rosé | gold [button_]\n"
        "  [button] color: red [button_]\n"
        "size\n"
        "  [button] size: red [button_]\n"
        "  [button] small [button_]\n"
        "  [button] size: buy now [button_]\n"
        "Brass Lamp\nPrice: $10.0 to $30.0\nRating: N.A.\n"
        "[button] Description [button_]\n[button] Features [button_]\n"
        "[button] Reviews [button_]\n[button] Buy Now [button_]\n"
    )
    assert session.act("click[features]") is None
    assert session.observe("text_rich") == (
        HEAD.format(goal=goal) + "[button] < Prev [button_]\n Dimmable \n \n Made of brass\n"
    )
    assert session.act("click[< prev]") is None
    assert session.observe("text_rich") == item
    assert session.act("click[description]") is None
    assert session.observe("text_rich").endswith("[button] < Prev [button_]\nWarm light.\n")
    session.act("click[< prev]")
    session.act("click[reviews]")
    assert session.observe("text_rich") == HEAD.format(goal=goal) + "[button] < Prev [button_]\n"


def test_pages_in_text(open_session):
    session = open_session()
    goal = session.goal.instruction
    assert session.observe("text") == f"WebShop [SEP] Instruction: [SEP] {goal} [SEP] Search"
    session.act("search[lamp]")
    assert session.observe("text").startswith(
        f"Instruction: [SEP] {goal} [SEP] Back to Search [SEP] Page 1 (Total results: 14) [SEP] "
        "Next > [SEP] B0"
    )
    session.act("click[next >]")
    assert " [SEP] Page 2 (Total results: 14) [SEP] < Prev [SEP] B0" in session.observe("text")
    session.act("click[back to search]")
    session.act("search[brass]")
    session.act("click[b00000000a]")
    assert session.observe("text").endswith(
        "[SEP] Brass Lamp [SEP] Price: $10.0 to $30.0 [SEP] Rating: N.A. [SEP] Description [SEP] "
        "Features [SEP] Reviews [SEP] Buy Now"
    )
    session.act("click[features]")
    assert session.observe("text").endswith(
        "Back to Search [SEP] < Prev [SEP] Dimmable [SEP]  [SEP] Made of brass"
    )


def test_urls(open_session):
    session = open_session()
    base, number = "http://127.0.0.1:3000", session.goal.index
    assert session.observe("url") == f"{base}/{number}"
    session.act("search[Brass  lamp]")
    assert session.observe("url") == f"{base}/search_results/{number}/brass+lamp/1"
    session.act("click[b00000000a]")
    session.act("click[small]")
    where = f"{number}/B00000000A"
    assert session.observe("url") == f'{base}/item_page/{where}/brass+lamp/1/{{"size": "small"}}'
    session.act("click[features]")
    assert session.observe("url") == (
        f"{base}/item_sub_page/{where}/brass+lamp/1/Features/{{'size': 'small'}}"
    )
    session.act("click[< prev]")
    session.act("click[buy now]")
    assert session.observe("url") == f"{base}/done/{where}/{{'size': 'small'}}"


def test_search_only_where_a_box_is(open_session):
    session = open_session()
    session.act("search[lamp]")
    before = session.observe("text_rich")
    assert session.act("search[brass]") == "there is no search box on this page"
    assert session.observe("text_rich") == before
    assert session.act("click[back to search]") is None
    assert session.act("search[brass]") is None


def test_empty_search_is_refused(open_session):
    session = open_session()
    for action in ("search[]", "search[  ]"):
        assert session.act(action) == "the query is empty"
    assert session.page == "index"


def test_nothing_goes_on_after_the_purchase(open_session):
    session = open_session()
    for action in ("search[brass]", "click[b00000000a]", "click[buy now]"):
        assert session.act(action) is None
    bought = session.purchase
    assert bought is not None
    assert session.actions() == ()
    for action in ("search[lamp]", "click[buy now]", "click[back to search]"):
        assert session.act(action) is not None
    assert session.purchase is bought


def test_result_pages_end_where_results_end(open_session):
    session = open_session()
    session.act("search[lamp]")
    assert "click[next >]" in session.actions()
    assert "click[< prev]" not in session.actions()
    assert session.act("click[< prev]") is not None
    session.act("click[next >]")
    assert len(session.shown()) == 4
    assert "click[next >]" not in session.actions()
    assert session.act("click[next >]") is not None
    assert session.page_number == 2
    session.act("click[< prev]")
    assert session.page_number == 1
    session.act("click[back to search]")
    session.act("search[zzzqqq]")
    assert session.actions() == ("click[back to search]",)


def test_going_back_from_an_item_keeps_page_and_visits(open_session):
    session = open_session()
    session.act("search[lamp]")
    session.act("click[next >]")
    opened = session.shown()[0]
    session.act(opened.click)
    assert session.act("click[< prev]") is None
    assert (session.page, session.page_number, session.options) == ("results", 2, {})
    assert f"\n[clicked button] {opened.asin} [clicked button_]\n" in session.observe("text_rich")
    session.act("click[back to search]")
    session.act("search[lamp]")
    session.act("click[next >]")
    assert "clicked" not in session.observe("text_rich")


@pytest.mark.parametrize("word", ["search_results", "item_page", "item_sub_page", "done"])
def test_keywords_cannot_lead_pages_astray(open_session, word):
    session = open_session()
    session.act(f"search[brass {word}]")
    session.act("click[b00000000a]")
    session.act("click[features]")
    assert session.act("click[< prev]") is None
    assert session.page == "item"
    assert session.act("click[< prev]") is None
    assert (session.page, session.page_number) == ("results", 1)


@pytest.mark.parametrize(
    ("name", "group", "value"),
    [
        ('24" wide', "color", '24" wide'),  # a quote
        ("rosé | gold", "color", "rosé | gold"),  # a character beyond ASCII
        ("color: red", "color", "red"),  # the same value in two groups
        ("size: red", "size", "red"),
        ("size: buy now", "size", "buy now"),  # called like a button
        ("SMALL", "size", "small"),
    ],
)
def test_every_option_can_be_selected_and_shows(open_session, name, group, value):
    session = open_session()
    session.act("search[brass]")
    session.act("click[b00000000a]")
    assert session.act(f"click[{name}]") is None
    assert session.options == {group: value}
    page = session.observe("text_rich")
    shown = name.lower()
    assert page.startswith(f"You have clicked {shown}.\nInstruction:\n")
    assert f"\n  [clicked button] {shown} [clicked button_]\n" in page
    assert page.count("clicked button]") == 1
    assert session.page == "item"


def test_selecting_again_replaces_and_announces_from_below(open_session):
    session = open_session()
    session.act("search[brass]")
    session.act("click[b00000000a]")
    for name in ("color: red", "small", '24" wide'):
        session.act(f"click[{name}]")
    assert session.options == {"color": '24" wide', "size": "small"}
    assert session.observe("text_rich").startswith(
        'You have clicked small.\nYou have clicked 24" wide.\nInstruction:\n'
    )


def test_brackets_and_line_breaks_in_options(raw, open_session):
    raw.products[0]["customization_options"] = {
        "Kit": [{"value": v} for v in ("a [b]", "two\nlines", "", "A [B]")]
    }
    session = open_session()
    session.act("search[brass]")
    session.act("click[b00000000a]")
    assert session.actions()[-2:] == ("click[a [b]]", "click[two lines]")
    assert session.act("click[a [b]]") is None
    assert session.options == {"kit": "a [b]"}
    assert session.act("click[two lines]") is None
    assert session.options == {"kit": "two\nlines"}
    assert "\n  [clicked button] two lines [clicked button_]\n" in session.observe("text_rich")


def test_names_stay_apart_even_when_values_look_like_them(raw, open_session):
    raw.products[0]["customization_options"] = {
        "a": [{"value": "x"}, {"value": "b: x"}],
        "b": [{"value": "x"}],
    }
    session = open_session()
    session.act("search[brass]")
    session.act("click[b00000000a]")
    names = session.actions()[-3:]
    assert len(set(names)) == 3
    found = set()
    for name in names:
        assert session.act(name) is None
        found.add(tuple(session.options.items())[-1])
        session.options.clear()
    assert found == {("a", "x"), ("a", "b: x"), ("b", "x")}


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("<r>", 14),
        ("<r> whatever", 14),
        ("<c> garden", 14),
        ("<c> beauty", 0),
        ("<c>", 0),
        ("<q> lamps", 14),
        ("<a> dimmable", 2),
        ("<a> easy clean", 1),
        ("<a>", 0),
    ],
)
def test_special_keywords(open_session, query, count):
    session = open_session()
    assert session.act(f"search[{query}]") is None
    assert len(session.results) == count


def test_random_products_stay_for_the_whole_visit(open_session):
    session = open_session()
    session.act("search[<r>]")
    first = session.results
    session.act("click[next >]")
    session.act(session.shown()[0].click)
    session.act("click[< prev]")
    assert session.results == first


@pytest.mark.parametrize(
    "action",
    ["", "foo", "think[ok]", "search", "click", "click[]", "click[nonsense]", "click[search]",
     "click[buy now", "search[lamp] and more", "search[lamp]\nclick[x]x", "[x]", "\ud800"],
)  # fmt: skip
def test_other_text_changes_nothing(open_session, action):
    session = open_session()
    before = session.observe("text_rich"), session.actions()
    assert isinstance(session.act(action), str)
    assert not session.is_admissible(action)
    assert (session.observe("text_rich"), session.actions()) == before


@pytest.mark.parametrize("action", [" search[lamp] ", "SEARCH[lamp]", "search [ lamp\n]"])
def test_blanks_and_case_do_not_matter(open_session, action):
    session = open_session()
    assert session.is_admissible(action)
    assert session.act(action) is None
    assert session.keywords == ("lamp",)


def test_score_needs_an_open_product(open_session):
    session = open_session()
    with pytest.raises(RuntimeError, match="no product is open on the index page"):
        session.score()


def test_done_page(open_session):
    session = open_session()
    for action in ("search[brass]", "click[b00000000a]", "click[small]", "click[buy now]"):
        session.act(action)
    total = session.purchase.reward.total
    assert session.observe("text_rich") == (
        "Thank you for shopping with us!\nPurchased\nB00000000A\nsize: small\n"
        f"Your score (min 0.0, max 1.0)\n{total}\n"
    )
    assert session.observe("text").startswith("Thank you for shopping with us! [SEP] Purchased")


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_offered_is_what_is_accepted(data):
    """Along random walks: offered actions work, and others do not."""
    from agentgym import registry

    env = registry.make_env("WebShop-v0", catalogue="builtin:90", max_steps=40)
    try:
        env.reset(seed=data.draw(st.integers(0, 50)))
        session = env.session
        for _ in range(data.draw(st.integers(1, 12))):
            offered = session.actions()
            if not offered:
                break
            assert len(set(offered)) == len(offered)
            action = data.draw(st.sampled_from(offered))
            if action == "search[<query>]":
                action = f"search[{data.draw(st.sampled_from(env.goal().split()))}]"
            assert session.is_admissible(action)
            assert session.act(action) is None, action
            page = session.observe("text_rich")
            for name in session.clickables():
                assert f"] {name} [" in page.lower()
    finally:
        env.close()
