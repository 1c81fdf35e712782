"""From TVMScript to programs.

``entry`` reads modules and functions, ``relax`` and ``tirx`` the bodies of the two languages,
``signature`` parameters and their symbolic variables, ``evaluate`` expressions; ``source`` knows
places and makes the errors that show them. Counterpart: ``tvm.script.parser``.
"""
