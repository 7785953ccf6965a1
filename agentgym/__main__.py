"""``python -m agentgym``."""

from agentgym.cli import main

raise SystemExit(main())
