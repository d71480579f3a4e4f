"""How a trader is judged on days it has not seen."""
