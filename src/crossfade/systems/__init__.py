"""The systems that ship with crossfade, one folder each; `<name>.RECORD` names their parts."""
