"""What runs inside the sandbox: sent there as text, so each file needs the standard library alone.

``solution.py`` runs beside the code under test and knows no expected value. ``judge.py`` runs tests
that are code; the code under test never runs in its process.
"""
