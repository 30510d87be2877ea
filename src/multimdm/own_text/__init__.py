"""From a text of one's own to a few-step generator: prepare, a teacher, quantile noise, samples."""
