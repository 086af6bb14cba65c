"""Signed bulletins over links to neighbours: WebSockets with mutual TLS."""
