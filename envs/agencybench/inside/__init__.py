"""Programs that run inside the sandbox, beside the agent's code; they hold no expected values.

Their text is sent there; nothing of it is imported by the judge.
"""
