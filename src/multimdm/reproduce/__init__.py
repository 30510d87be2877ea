"""The paper's tables and figures as specifications that one command runs, at any scale."""
