#include "train/config/saving_fields.h"

namespace flatshard {

std::vector<Field> saving_fields(Config& c) {
  return {
      {.key = "checkpoint.save_every",
       .slot = &c.checkpoint.save_every,
       .help =
           "steps between checkpoints, plus one at the end; below 1: a fraction of the run; or a time such "
           "as 30min, 2h or 90s; 0 = never",
       .or_number = true},
      {"checkpoint.save_each_epoch", &c.checkpoint.save_each_epoch, "save at the end of every epoch too"},
      {.key = "checkpoint.best_every",
       .slot = &c.checkpoint.best_every,
       .help =
           "save a checkpoint too when an evaluation has the lowest loss of all that are saved, at most this "
           "often: steps or a time, as for save_every; auto = so often that it takes at most 5% of the time, "
           "unless save_every is 0; 0 = never",
       .or_number = true},
      {"checkpoint.keep",
       &c.checkpoint.keep,
       "checkpoints to keep, besides the one with the lowest evaluation loss; 0 = all",
       {},
       0},
      {"checkpoint.async", &c.checkpoint.async,
       "write from a copy in host memory while training continues; otherwise training waits"},
      {"checkpoint.on_sigterm", &c.checkpoint.on_sigterm,
       "save a checkpoint when a signal (SIGTERM, SIGINT, SIGUSR1, SIGHUP) ends the run"},
      {"checkpoint.on_error",
       &c.checkpoint.on_error,
       "if a checkpoint cannot be written: stop the run, or continue with a warning",
       {"stop", "continue"}},
      {.key = "checkpoint.shard_size",
       .slot = &c.checkpoint.shard_size,
       .help = "maximum size of one weights file, e.g. 5GB or 200MB; a larger model is split, with an index",
       .or_number = true},

      {"log.every", &c.log.every, "steps between progress lines", {}, 1},
      {"log.step1", &c.log.step1,
       "after step 1, print every rank's memory and first row (step1.txt has them in any case)"},
      {"log.tensorboard", &c.log.tensorboard,
       "write the metrics to event files for TensorBoard, in tensorboard/ of the run folder"},
  };
}

}  // namespace flatshard
