"""Any Gymnasium environment with discrete or text actions, played as text."""
