"""The processes behind `velo run`: supervisor, workers, sockets."""
