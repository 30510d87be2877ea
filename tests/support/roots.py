"""How often the noise of CANDI needs the root of a Gram matrix."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Roots(TorchDispatchMode):
    """Counts the roots that are made while it is on; each of them is of one Gram matrix."""

    made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and count it if it is the one."""
        self.made += func.overloadpacket is torch.ops.aten.linalg_cholesky_ex
        return func(*args, **(kwargs or {}))
