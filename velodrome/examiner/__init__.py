"""The examination of an environment: its answers, its tools, its sessions and its data, one small class per rule."""
