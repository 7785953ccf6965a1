"""The outside world: policies over inference engines and bridges to other RL libraries."""
