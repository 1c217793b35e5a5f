"""Observing state inside the training process: what tracked tensors and objects were at an observation point.

``points`` (hooks for the session) -> ``observer`` (what to look at, when) -> ``models``, ``optimizers`` (who is who),
``tensors``, ``batches``,
``losses``, ``rng``, ``sources``, ``ranks``, ``versions`` (rows of state) -> ``recorder``. ``guard`` keeps all of it
from changing training.

No strong reference to anything of the user's is kept, and no weak one to tensors: ``torch.utils.swap_tensors``
(``Module.to`` on DTensors) refuses
tensors that have weak references. Modules and optimizers are held weakly; tensors are found anew at each observation.
"""
