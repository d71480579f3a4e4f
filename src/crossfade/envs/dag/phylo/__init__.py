"""Phylogenetic trees under parsimony, built by joining trees."""
