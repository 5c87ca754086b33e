"""The MCP server: coverage, knowledge, runs and verdicts as typed tools for coding agents that are not ours."""
