"""The name seed recipes import this by; the settings themselves are Velodrome's."""

from velodrome.training.settings import ActionSupervisedAndCriticConfig

__all__ = ["ActionSupervisedAndCriticConfig"]
