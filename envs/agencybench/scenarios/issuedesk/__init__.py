"""mcp/issuedesk: triage, branches, files and pull requests through a server's tools."""
