#include "tests/workshop.h"

#include <filesystem>
#include <fstream>

#include "runtime/rng.h"
#include "text/data/token_file.h"

namespace flatshard::test {

Workshop::Workshop(const std::string& folder) : folder_(folder) {
  std::filesystem::create_directories(folder_);
  TokenWriter writer(file("corpus.tok"), kVocab);
  const RandomStream random(1, "corpus");
  int64_t at = 0;
  for (int64_t document = 0; document < 60; ++document) {
    std::vector<int32_t> tokens(static_cast<size_t>(5 + 7 * (document % 5)));
    for (int32_t& t : tokens) t = static_cast<int32_t>(random.bits(at++) % kVocab);
    writer.add_document(tokens);
  }
  writer.finish();
  std::ofstream(file("config.toml")) << R"(
[run]
seed = 7
[model]
layers = 2
hidden = 24
heads = 2
ffn = 40
vocab = 53
[data]
train = "corpus.tok"
eval = "corpus.tok"
seq_len = 16
packing = "documents"
[train]
steps = 6
total_batch_size = 8
batch_size_per_device = 1
lane_size = 1
eval_every = 3
[optimizer]
lr = 1e-2
weight_decay = 0.1
grad_clip = 0.5
[checkpoint]
save_every = 0
best_every = 0
keep = 0
)";
}

Finished Workshop::train(int ranks, const std::string& options, int limit_seconds) const {
  const std::string again = options.find("--resume") == options.npos ? "--overwrite " : "";
  return run_command("cd " + folder_ + " && " + launcher(ranks) + "@train config.toml " + again + options,
                     limit_seconds);
}

}  // namespace flatshard::test
