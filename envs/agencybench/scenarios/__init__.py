"""The scenarios that come with the suite, one package each."""
