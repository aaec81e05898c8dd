"""What the supervisor sends a worker at its start. Secrets travel in it only: not in arguments or the environment."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from velodrome.serving.process.options import ServingOptions
from velodrome.settings import Instance

HEAD = "head_server"  # the kind and the name of the head


@dataclass(frozen=True)
class Brief:
    """What one worker of one server must know: its own block, and of the others their addresses."""

    instance: Instance
    host: str
    index: int
    sockets: list[int]
    peers: list[str]
    key: str
    options: ServingOptions
    blocks: dict[str, Instance]  # that it refers to; settings only where they are the address of a server elsewhere
    urls: dict[str, str]
    token: str | None
    verbose: bool
    profiles: str | None  # the folder for profiles
    config_yaml: str  # for the head: the configuration, masked

    def encoded(self) -> bytes:
        options = self.options.model_dump(mode="json", include=set(ServingOptions.model_fields))
        return orjson.dumps(self, lambda _: options, orjson.OPT_NON_STR_KEYS)

    @classmethod
    def decoded(cls, data: bytes) -> Brief:
        fields = orjson.loads(data)
        fields["instance"] = Instance(**fields["instance"])
        fields["blocks"] = {name: Instance(**block) for name, block in fields["blocks"].items()}
        return cls(**fields | {"options": ServingOptions.model_validate(fields["options"])})
