"""The hypergrid of the GFlowNet papers, its rewards decided in integers."""
