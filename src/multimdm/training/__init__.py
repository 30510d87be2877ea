"""One loop for every objective: pretraining and adaptation, with checkpoints that survive anything."""
