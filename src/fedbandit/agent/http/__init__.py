"""The HTTP API for the application beside the agent."""
