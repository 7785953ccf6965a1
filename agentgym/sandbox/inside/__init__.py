"""What runs inside a sandbox, or on the way into it. Standard library only.

These modules are run by an interpreter of their own, which sees this folder and nothing else of
the suite.
"""
