"""The same settings with the timing tree printed. The loop and what it computes are the same."""

from pydantic import Field

from velodrome.training.settings import ActionSupervisedAndCriticConfig as Plain


class ActionSupervisedAndCriticConfig(Plain):
    """The first phase, with the timing tree printed every 10 rollouts."""

    profiled: bool = Field(True, description=Plain.model_fields["profiled"].description)


__all__ = ["ActionSupervisedAndCriticConfig"]
