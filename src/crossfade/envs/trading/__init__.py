"""Intraday futures trading on an integer ledger of ticks, cents and minutes. `params.py` states the rules."""
