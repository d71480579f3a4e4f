"""Treasurehunt: agents on a walled map collect what appears on it."""
