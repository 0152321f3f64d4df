#pragma once
// Trials that are drawn at random: a subject, and a way to divide it.

#include <string>
#include <vector>

#include "tests/comm/settings.h"
#include "tests/fuzz/dice.h"

namespace flatshard::test {

// Adds the subject divided by divide(config, dice), which returns a name; on one rank, also undivided.
template <class Divide>
void add_drawn(std::vector<Trial>& trials, const Config& subject, const std::string& key, int ranks,
               Dice& dice, Divide&& divide) {
  Trial trial{.config = subject, .order = StreamOrder::in_order, .key = key, .name = "plain"};
  if (ranks == 1) trials.push_back(trial);
  trial.name = divide(trial.config, dice);
  // In stages, every other stream order waits for messages that no rank has sent yet.
  trial.order =
      trial.config.parallel.stages > 1
          ? StreamOrder::concurrent
          : dice.of<StreamOrder>({StreamOrder::concurrent, StreamOrder::comm_late, StreamOrder::comm_early});
  trials.push_back(trial);
}

}  // namespace flatshard::test
