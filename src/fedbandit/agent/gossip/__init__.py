"""Gossip with neighbours over gRPC and mutual TLS."""
