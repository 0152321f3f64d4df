#include "tests/checkpoint_content.h"

#include <fstream>
#include <sstream>

#include "checkpoint/checksums.h"
#include "runtime/check.h"
#include "train/save/shard_files.h"
#include "train/save/train_state.h"

namespace flatshard::test {

std::string checkpoint_content(const std::string& checkpoint) {
  const Checksums sums = Checksums::read(checkpoint);
  for (const auto& [name, ignored] : sums.files()) sums.verify(checkpoint, name);
  std::string text;
  for (const char* stem : stems_in(checkpoint)) {
    const TensorFolder tensors(checkpoint, stem);
    for (const std::string& name : tensors.file_names())
      for (const uint64_t block : sums.files().at(name).blocks) text += str(name, ' ', block, '\n');
  }
  const TrainState s = read_train_state(checkpoint + "/train_state.json");
  return text + str(s.step, ' ', s.data_step, ' ', s.tokens, ' ', s.skipped_in_a_row, ' ', s.loss_scale, ' ',
                    s.good_steps);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

}  // namespace flatshard::test
