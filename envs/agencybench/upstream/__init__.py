"""The scenarios of a user's clone of AgencyBench (GAIR-NLP/AgencyBench, arXiv 2601.11044)."""
