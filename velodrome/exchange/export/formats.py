"""Every format there is, by its name."""

from __future__ import annotations

from velodrome.exchange.export import flat, nemo_gym, trl, verl
from velodrome.exchange.export.format import Format

FORMATS: dict[str, Format] = {
    each.name: each for each in (trl.SFT, trl.DPO, trl.GRPO, verl.FORMAT, flat.FORMAT, nemo_gym.FORMAT)
}
