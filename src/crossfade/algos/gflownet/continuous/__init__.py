"""GFlowNets on continuous environments: the cube and the torus."""
