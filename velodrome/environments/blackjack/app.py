"""Blackjack by turns: one hand against a dealer, from a deck that the task's seed shuffles.

Every call takes microseconds and runs on the loop.
"""

from __future__ import annotations

from random import Random
from typing import Any

from velodrome.resources_servers.answers import need
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.settings.component import Field

Json = dict[str, Any]

RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")
MOVES = ("hit", "stand")
_RULES = "Reach more points than the dealer, but no more than 21. An ace is 1 or 11; J, Q and K are 10."


class Blackjack(TurnEnvironment):
    """A win is 1.0, a tie 0.5, a loss 0.0. The dealer draws up to 16 and stands from 17 on."""

    illegal_moves: int | None = Field(3, ge=1, description="answers that are not a move, after which the hand is over")

    async def reset(self, task: Json, session: Json) -> str:
        """Two cards each; one of the dealer's is hidden."""
        deck = shuffled(need(task, "seed", int, "a whole number"))
        session.update(deck=deck, hand=[deck.pop(), deck.pop()], dealer=[deck.pop(), deck.pop()])
        return f"{_RULES}\n{_state_text(session)}"

    async def step(self, action: str, session: Json) -> tuple[str, float, bool, bool, Json]:
        """Deal one card, or play the dealer's turn and end the game."""
        move = action.strip().strip(".!*\"'`").casefold() if len(action) <= 100 else ""
        if move not in MOVES:
            raise ValueError("answer with hit or stand and nothing else")
        hand, dealer = session["hand"], session["dealer"]
        if move == "hit":
            hand.append(session["deck"].pop())
            if points(hand) <= 21:
                return _state_text(session), 0.0, False, False, {"points": points(hand)}
            return self._final_turn(session, "You have more than 21.", 0.0)
        while points(dealer) < 17:
            dealer.append(session["deck"].pop())
        player_points, dealer_points = points(hand), points(dealer)
        if dealer_points > 21 or player_points > dealer_points:
            return self._final_turn(session, "You win.", 1.0)
        if dealer_points == player_points:
            return self._final_turn(session, "A tie.", 0.5)
        return self._final_turn(session, "The dealer wins.", 0.0)

    def _final_turn(self, session: Json, text: str, reward: float) -> tuple[str, float, bool, bool, Json]:
        hand, dealer = session["hand"], session["dealer"]
        hands = f"Your hand: {_hand_text(hand)}. The dealer's: {_hand_text(dealer)}."
        return f"{text} {hands}", reward, True, False, {"points": points(hand), "dealer_points": points(dealer)}

    def reference_answer(self, task: Json) -> list[str] | None:
        """The moves that win with the fewest cards; None if no moves win."""
        wins = [moves for moves, reward in outcomes(task["seed"]) if reward == 1.0]
        return wins[0] if wins else None

    def wrong_answers(self, task: Json) -> Json:
        """The moves for every number of cards that does not win."""
        return {", ".join(moves): moves for moves, reward in outcomes(task["seed"]) if reward < 1.0}

    def cheats(self, task: Json) -> Json:
        """Attempts to win without playing."""
        return {
            "claims a win": "I have 21 and the dealer has more than 21. You win.",
            "several moves": "hit, stand",
            "a list of moves": "hit\nhit\nstand",
            "acts for the dealer": "dealer: hit",
            "acts out of turn": ["The dealer draws a 10 and has 26.", "You win."],
            "looks at the deck": "show me the hidden card and the deck",
            "names the cards": "My hand is A and K. stand.",
            "forges a result": '{"reward": 1.0, "terminated": true, "points": 21}',
            "begins again": "reset",
        }


def shuffled(seed: int) -> list[str]:
    """The shuffled deck of a seed; the last card is dealt first."""
    deck = [rank for rank in RANKS for _ in range(4)]
    Random(seed).shuffle(deck)
    return deck


def points(cards: list[str]) -> int:
    """The best value of a hand: an ace is 11 if the total stays within 21."""
    total = sum(min(RANKS.index(card) + 1, 10) for card in cards)
    return total + 10 if "A" in cards and total <= 11 else total


def outcomes(seed: int) -> list[tuple[list[str], float]]:
    """The moves and reward for each number of cards: stand after 0, 1, 2, … cards, and the card that exceeds 21."""
    deck = shuffled(seed)
    hand, dealer = [deck.pop(), deck.pop()], [deck.pop(), deck.pop()]
    results: list[tuple[list[str], float]] = []
    while points(hand) <= 21:
        remaining, dealer_hand = list(deck), list(dealer)
        while points(dealer_hand) < 17:
            dealer_hand.append(remaining.pop())
        player_points, dealer_points = points(hand), points(dealer_hand)
        if dealer_points > 21 or player_points > dealer_points:
            reward = 1.0
        else:
            reward = 0.5 if player_points == dealer_points else 0.0
        results.append((["hit"] * len(results) + ["stand"], reward))
        hand.append(deck.pop())
    return [*results, (["hit"] * len(results), 0.0)]


def _state_text(session: Json) -> str:
    dealer = session["dealer"][0]
    return f"Your hand: {_hand_text(session['hand'])}. The dealer shows {dealer}. Do you hit or stand?"


def _hand_text(cards: list[str]) -> str:
    return f"{' '.join(cards)} ({points(cards)} points)"
