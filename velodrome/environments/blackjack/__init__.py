"""Blackjack by turns, from seeded decks that can be won."""
