"""The eleven-node graph that upstream teaches with."""
