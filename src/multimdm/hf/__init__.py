"""Checkpoints of ours in transformers: after `import multimdm.hf`, `AutoConfig` and `AutoModel` know them.

No code is fetched with a model: what runs is this package.
"""

try:
    import transformers
except ImportError as error:
    raise ImportError("multimdm.hf needs the package transformers: pip install 'multimdm[hf]'") from error

from multimdm.hf.config import LLaDAHubConfig, MultiMDMConfig
from multimdm.hf.model import MultiMDMForLLaDA, MultiMDMModel

for _config, _model in ((MultiMDMConfig, MultiMDMModel), (LLaDAHubConfig, MultiMDMForLLaDA)):
    transformers.AutoConfig.register(_config.model_type, _config, exist_ok=True)
    transformers.AutoModel.register(_config, _model, exist_ok=True)
    transformers.AutoModelForMaskedLM.register(_config, _model, exist_ok=True)

__all__ = ["LLaDAHubConfig", "MultiMDMConfig", "MultiMDMForLLaDA", "MultiMDMModel"]
