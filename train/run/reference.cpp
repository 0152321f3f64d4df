#include "train/run/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "comm/agreement.h"
#include "hub/adapter_base.h"
#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/log.h"
#include "runtime/sha256.h"
#include "runtime/text.h"
#include "text/data/token_column.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

// What the weights that the run starts from are.
std::string weights_of(const Config& config, const InputPrints& prints) {
  if (config.init_from.empty()) return str("random, of run.seed = ", config.run.seed);
  return prints.base ? *prints.base : weights_fingerprint(config.init_from);
}

// All that the log-probabilities depend on, but for the tokens.
nlohmann::ordered_json settings_of(const RunSetup& setup, const InputPrints& prints) {
  Config config = setup.config;
  nlohmann::ordered_json all{{"weights", weights_of(config, prints)}};
  if (!config.adapter.empty()) all["adapter"] = fingerprint({config.adapter + "/adapter_model.safetensors"});
  for (const auto& [key, value] : config_values(config))
    if (key.starts_with("model.") || key.starts_with("quant.") || key == "lora.init" ||
        key == "precision.compute" || key == "precision.tf32" || key == "data.seq_len" ||
        key == "data.max_samples")
      all[key] = value;
  for (const char* const names_a_file : {"model.init_from", "model.adapter", "model.trainable"})
    all.erase(names_a_file);
  return all;
}

}  // namespace

std::string Reference::File::path() const {
  Sha256 sha;
  sha.add(identity.data(), identity.size());
  return str(tokens, '.', sha.hex().substr(0, 16), ".reference");
}

Reference::Reference(const RunSetup& setup, const RunInputs& inputs, World& world)
    : setup_(setup), world_(world) {
  if (!setup.config.loss.has_reference()) return;
  std::string identities;
  succeed_together(world, [&] {
    nlohmann::ordered_json settings = settings_of(setup, inputs.prints);
    const auto add = [&](const NamedFile& file, const std::string& print) {
      settings["tokens"] = print;
      files_.push_back({file.path, json_text(settings)});
    };
    size_t i = 0;
    for (const NamedFile& file : named_files(setup.config.data.train)) add(file, inputs.prints.train[i++]);
    i = 0;
    for (const NamedFile& file : named_files(setup.config.data.eval)) add(file, inputs.prints.eval[i++]);
    for (const File& file : files_) identities += file.identity + '\n';
  });
  agree(world, identities, "the reference of the loss", "every rank must start from the same weights");
  const auto missing = [](const File& file) { return !fs::exists(file.path()); };
  const std::array<double, 1> mine{std::any_of(files_.begin(), files_.end(), missing) ? 1.0 : 0.0};
  for (const double any : world.all_gather(mine, "missing references")) is_missing_ |= any != 0;
}

void Reference::make(Engine& engine) {
  if (!is_missing_) return;
  std::set<std::string> made;  // training and evaluation may read the same file
  for (const File& file : files_)
    if (made.insert(file.path()).second) make(file, engine);
  world_.barrier("the reference");
}

// Every rank gathers all values, and the first one of each host writes them.
void Reference::make(const File& file, Engine& engine) {
  RunData in_order(DataFiles(std::vector{NamedFile{file.tokens, file.tokens}}), setup_, true);
  const Data& data = in_order.data;
  const Sequences& sequences = data.source(0);
  const int64_t B = setup_.eval_sequences, S = setup_.seq_len(), ranks = setup_.batching.ranks;
  std::vector<float> column(static_cast<size_t>(in_order.files.front().whole_size()),
                            std::numeric_limits<float>::quiet_NaN());
  for (int64_t batch = 0; batch < data.steps_per_epoch(); ++batch) {
    const std::vector<float> losses = engine.target_losses(data, batch);
    const std::vector<double> all =
        world_.all_gather(std::vector<double>(losses.begin(), losses.end()), "reference log-probabilities");
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (setup_.stage_of(rank) != setup_.pipeline.stages - 1) continue;
      for (int64_t row = 0; row < B; ++row) {
        const int64_t sequence = (batch * ranks + setup_.data_rank(rank)) * B + row;
        if (sequence >= data.sequence_count()) continue;
        const double* const losses_of_row = &all[static_cast<size_t>((rank * B + row) * S)];
        std::vector<LaneUnit> units;
        sequences.append_units(sequence, 0, units);
        for (const LaneUnit& unit : units)
          for (int64_t t = unit.begin; t + 1 < unit.end; ++t)
            column[static_cast<size_t>(unit.piece.begin + t + 1 - unit.begin)] =
                static_cast<float>(-losses_of_row[t]);
      }
    }
  }
  if (world_.local_rank() == 0) write_token_column(file.path(), file.identity, column);
  if (world_.rank() == 0)
    log_info(file.path(), ": the log-probabilities of ", file.tokens,
             " under the initial weights; kept for later runs");
}

void open_columns(const AnswerLoss& loss, const Reference& reference, RunInputs& inputs) {
  if (columns_of(loss).empty()) return;
  size_t next = 0;
  const auto open = [&](RunData& data) {
    std::vector<RunData::ReferenceFile> references;
    for (size_t i = 0; i < data.files.size() && loss.has_reference(); ++i, ++next)
      references.push_back({reference.files()[next].path(), reference.files()[next].identity});
    data.open_columns(loss, references);
  };
  open(inputs.train);
  for (RunData& data : inputs.eval) open(data);
}

}  // namespace flatshard
