"""Agendas: their file format, validation, and the runs that they define."""
