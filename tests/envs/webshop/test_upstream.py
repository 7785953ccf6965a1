"""The original's rules, faults included, on the hand-made catalogue."""

import pytest


@pytest.fixture
def session(open_session):
    return open_session("upstream")


def _item(session, query="brass"):
    session.act(f"search[{query}]")
    session.act("click[b00000000a]")
    assert session.page == "item"


def test_search_works_on_every_page_and_after_the_purchase(session):
    _item(session)
    assert session.is_admissible("search[lamp]")
    assert session.act("search[lamp]") is None
    session.act("click[b00000000b]" if "b00000000b" in session.clickables() else "click[next >]")
    _item(session)
    session.act("click[buy now]")
    first = session.purchase
    assert session.clickables() == ()
    _item(session)
    session.act("click[buy now]")
    assert session.purchase is not first


def test_start_page_lists_the_search_button_but_does_not_press_it(session):
    assert session.clickables() == ("search",)
    assert session.has_search_bar()
    assert session.actions() == ("search[<query>]",)
    assert session.act("click[search]") is not None
    assert session.page == "index"


def test_result_pages_go_on_past_the_end(session):
    session.act("search[lamp]")
    for page in range(2, 9):
        assert session.act("click[next >]") is None
        assert session.page_number == page
    assert session.observe("text_rich").endswith(
        "Page 8 (Total results: 14)\n[button] < Prev [button_]\n[button] Next > [button_]\n"
    )
    assert session.clickables() == ("back to search", "< prev", "next >")


def test_blanks_in_a_query_are_kept(session):
    session.act("search[Red  lamp ]")
    assert session.keywords == ("red", "", "lamp", "")
    assert session.url().endswith("/red++lamp+/1")
    session.act("search[ ]")
    assert session.keywords == ("", "")
    assert "(Total results: 0)" in session.observe("text")


@pytest.mark.parametrize(
    ("action", "keywords"),
    [
        ("search[lamp] and then more", ("lamp",)),
        ("search[a] b]", ("a]", "b")),
        ("search[lamp]\nclick[x]", ("lamp",)),
    ],
)
def test_text_after_the_bracket_is_ignored(session, action, keywords):
    assert session.act(action) is None
    assert session.keywords == keywords


@pytest.mark.parametrize(
    "action",
    ["search[a [b] c]", "search[]", "Search[lamp]", " search[lamp]", "search[a\nb]", "\nsearch[a]",
     "search", "foo", "think[ok]", ""],
)  # fmt: skip
def test_other_forms_do_nothing(session, action):
    assert session.act(action) is not None
    assert not session.is_admissible(action)
    assert session.page == "index"


def test_clicks_need_the_exact_name_but_not_its_case(session):
    _item(session)
    assert session.act("click[buy now ]") is not None
    assert session.act("click[ROSÉ | GOLD]") is None
    assert session.options == {"color": "rosé | gold"}


def test_of_equal_values_the_last_group_counts(session):
    _item(session)
    session.act("click[red]")
    assert session.options == {"size": "red"}
    # Both look selected, since each label is looked up in the address.
    page = session.observe("text_rich")
    assert page.count("[clicked button] red") == 2
    assert page.startswith("You have clicked red.\nYou have clicked red.\nInstruction:")
    assert session.clickables().count("red") == 1


def test_a_value_called_like_a_button_presses_it(session):
    _item(session)
    assert session.act("click[buy now]") is None
    assert session.page == "done"


def test_quotes_and_characters_beyond_ascii_never_look_selected(session):
    _item(session)
    for name in ('24" wide', "rosé | gold"):
        session.act(f"click[{name}]")
        assert session.options == {"color": name}
        assert "clicked" not in session.observe("text_rich")


def test_a_quoted_keyword_makes_an_option_look_selected(session):
    _item(session, 'brass "small"')
    assert session.options == {}
    assert session.observe("text_rich").startswith("You have clicked small.\nYou have clicked")
    # The same string stands twice among the sizes.
    assert session.observe("text_rich").count("[clicked button] small") == 2


def test_search_results_as_a_keyword_leads_to_page_zero(session):
    _item(session, "brass search_results")
    session.act("click[features]")
    assert session.act("click[< prev]") is None
    assert (session.page, session.page_number) == ("results", 0)
    assert "Page 0 (Total results: 1)" in session.observe("text")
    assert session.clickables() == ("back to search", "next >")
    session.act("click[next >]")
    assert [view.asin for view in session.shown()] == ["B00000000A"]
    session.act("click[b00000000a]")
    session.act("click[< prev]")
    assert session.page_number == 0


def test_item_page_as_a_keyword_skips_the_item(session):
    _item(session, "brass item_page")
    session.act("click[features]")
    session.act("click[< prev]")
    assert (session.page, session.page_number) == ("results", 1)


def test_back_from_sub_page_keeps_options_back_from_item_loses_them(session):
    _item(session)
    session.act("click[small]")
    session.act("click[description]")
    session.act("click[< prev]")
    assert session.options == {"size": "small"}
    session.act("click[< prev]")
    assert session.page == "results"
    assert session.options == {}
    assert "[clicked button] B00000000A [clicked button_]" in session.observe("text_rich")


def test_back_to_search_forgets_visits(session):
    _item(session)
    session.act("click[back to search]")
    session.act("search[brass]")
    assert "clicked" not in session.observe("text_rich")


@pytest.mark.parametrize(("query", "error"), [("<a> x", TypeError), ("<c>", IndexError)])
def test_special_keywords_that_fail(session, query, error):
    with pytest.raises(error):
        session.act(f"search[{query}]")


def test_special_keywords_that_work(session):
    for query, count in (("<r>", 14), ("<c> garden", 14), ("<q> lamps", 14), ("<c> ", 0)):
        session.act(f"search[{query}]")
        assert len(session.results) == count


def test_done_page_prints_the_hidden_block(session):
    _item(session)
    session.act("click[small]")
    session.act("click[rosé | gold]")
    session.buy()
    page = session.observe("text_rich")
    assert page.startswith(
        "Thank you for shopping with us!\nYour code: \nNone\n (Paste it in your MTurk interface.)\n"
        'Purchased\nasin\nB00000000A\noptions\n{"color": "ros\\u00e9 | gold", "size": "small"}\n'
    )
    assert "price upper\ninstuction text\n" in page
