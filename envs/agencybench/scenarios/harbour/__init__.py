"""research/harbour: find, weigh and cite facts in an invented registry of ports."""
