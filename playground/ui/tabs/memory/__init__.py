"""The Memory tab: which bytes move between which levels."""
