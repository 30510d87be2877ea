"""The command line: a table of commands and one thin file per command."""
