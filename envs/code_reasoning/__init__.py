"""CodeReasoning: Python functions to write, judged by hidden tests in a sandbox."""
