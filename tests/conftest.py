"""Settings of all tests."""

import hypothesis
import torch

# Machines here are slow and shared: no deadlines. Examples are the same in every run.
hypothesis.settings.register_profile("multimdm", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("multimdm")

torch.set_num_threads(1)  # the tests run in several processes
