"""Environments: our own grid, Gymnasium and mettagrid, behind one interface of arrays."""
