"""TVMScript: programs as Python text, in both directions."""

from relaxlab.script import printer as printer
