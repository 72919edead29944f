"""The command line, one file a group of commands: flags in, one call, where the output lies."""
