"""The whole story in minutes: train, adapt, distil, generate, compare, on the built-in corpus."""
