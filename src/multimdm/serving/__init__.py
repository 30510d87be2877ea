"""An OpenAI-compatible HTTP server for diffusion language models, and a page that shows text being drafted."""
