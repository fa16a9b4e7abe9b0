"""Tests of the project itself: its layers, its documents, its requirements, its install."""
