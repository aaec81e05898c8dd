"""Every format there is, by its name."""

from __future__ import annotations

from velodrome.exchange.export import axolotl, dpo, flat, grpo, nemo_gym, sft, sharegpt, verl
from velodrome.exchange.export.format import Format

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT for module in (sft, dpo, grpo, verl, flat, nemo_gym, sharegpt, axolotl)
}
