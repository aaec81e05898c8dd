"""What tests share: processes, servers, models, browsers, clocks and rollouts."""
