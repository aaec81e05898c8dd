"""The name seed recipes import this by; the settings themselves are Velodrome's."""

from velodrome.train.settings import ActionSupervisedAndCriticConfig

__all__ = ["ActionSupervisedAndCriticConfig"]
