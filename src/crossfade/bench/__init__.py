"""Speed, measured: the benches behind `crossfade bench`."""
