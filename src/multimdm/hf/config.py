"""config.json of our checkpoints as transformers holds it, with the names that it is used to."""

from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig

from multimdm.pipeline.settings import MODEL_TYPE, CheckpointSettings, as_json, read_as


class MultiMDMConfig(PretrainedConfig):
    """Network, process, lineage and advice of a checkpoint; what is written is what `Model.save` writes."""

    model_type = MODEL_TYPE

    def __init__(
        self,
        network: dict[str, Any] | None = None,
        process: dict[str, Any] | None = None,
        foreign: dict[str, Any] | None = None,
        lineage: Sequence[dict[str, Any]] = (),
        advice: dict[str, Any] | None = None,
        version: int = 1,
        **others: Any,
    ) -> None:
        self.network, self.process, self.foreign = network, process, foreign
        self.lineage, self.advice, self.version = list(lineage), advice, version
        super().__init__(**others)

    @property
    def settings(self) -> CheckpointSettings:
        """The configuration in our own terms, checked."""
        names = ("network", "process", "foreign", "lineage", "advice", "version")
        return read_as(CheckpointSettings, {name: getattr(self, name) for name in names}, type(self).__name__)

    def to_json_string(self, use_diff: bool = True) -> str:
        """The text of config.json, as in our checkpoints; of an empty configuration, as transformers writes it."""
        return super().to_json_string(use_diff) if self.network is None else as_json(self.settings)

    @property
    def vocab_size(self) -> int | None:
        """V: clean tokens. The masks are the ids from V on."""
        return self._of_network("vocab_size")

    @property
    def num_masks(self) -> int | None:
        """M, the number of masks."""
        return self._of_network("num_masks")

    @property
    def hidden_size(self) -> int | None:
        """The width of the network."""
        return self._of_network("hidden_dim")

    @property
    def num_hidden_layers(self) -> int | None:
        """The number of blocks."""
        return self._of_network("num_blocks")

    @property
    def num_attention_heads(self) -> int | None:
        """The attention heads of each block."""
        return self._of_network("num_heads")

    @property
    def max_position_embeddings(self) -> int | None:
        """The length of the longest text."""
        return self._of_network("max_length")

    def _of_network(self, name: str) -> int | None:
        """None of an empty configuration, which transformers makes to compare others with."""
        return None if self.network is None else getattr(self.settings.network, name)


class LLaDAHubConfig(PretrainedConfig):
    """LLaDA's published config.json, all of it."""

    model_type = "llada"

    def __init__(self, **published: Any) -> None:
        published.pop("model_type", None)
        super().__init__(**published)
