"""AgencyBench: chained, long tasks with tools in a sandbox, scored by what was built."""
