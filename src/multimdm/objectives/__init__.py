"""What training makes small: the ELBO with its curricula, DUO's relaxation, CANDI, the next token, distillation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
