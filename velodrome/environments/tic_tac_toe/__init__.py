"""Noughts and crosses, for two players or against a perfect one."""
