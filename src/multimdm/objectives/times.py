"""Times of a batch, spread evenly: the integral over t then has far less variance than with independent draws."""

import math
from functools import lru_cache

import torch
from jaxtyping import Float64
from torch import Tensor

from multimdm._checks import check_integer
from multimdm.process.draws import Generator, pick, uniform

_GOLDEN = (math.sqrt(5) - 1) / 2


def stratified_times(num: int, generator: Generator = None) -> Float64[Tensor, " num"]:
    """t_i = (k_i + u_i) / num: one time in each of `num` equal intervals, k_i = (i stride + r) mod num with a random r.

    The random r makes every single t_i uniform, so the estimate is unbiased whatever the order of the data. The stride
    is near the golden section: any run of neighbours, such as the part of one rank or of one step of gradient
    accumulation, is spread almost evenly too, and has about the same number of masks to predict.
    """
    check_integer("num", num, 1)
    u = uniform((num + 1,), generator, "cpu")
    interval = (torch.arange(num) * _stride(num) + pick(u[num], num)) % num
    return ((interval + u[:num]) / num).clamp(2.0**-53, 1 - 2.0**-53)  # the last one may round to 1


@lru_cache(maxsize=16)
def _stride(num: int) -> int:
    """The integer nearest to the golden section of num that shares no factor with it."""
    start = round(num * _GOLDEN)
    return min((k for k in range(1, num + 1) if math.gcd(k, num) == 1), key=lambda k: abs(k - start))
