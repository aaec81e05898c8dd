"""Numbers over rollouts: metrics, groups, intervals, comparisons."""
