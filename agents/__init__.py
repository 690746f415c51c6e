"""Policies for the games, behind one interface."""
