#include "train/run/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "comm/agreement.h"
#include "hub/adapter_base.h"
#include "hub/adapter_config.h"
#include "hub/adapter_folder.h"
#include "hub/gguf/gguf_file.h"
#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "text/data/kept_files.h"
#include "text/data/token_column.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

// The fingerprint of the weights that the run starts from; "" if they are random.
std::string weights_of(const Config& config, const InputPrints& prints) {
  if (config.init_from.empty()) return "";
  return prints.base ? *prints.base : fingerprint(weights_files(config.init_from));
}

using Json = nlohmann::ordered_json;

// Settings that the log-probabilities depend on, besides the model's. Adapters add nothing at first, so
// lora.rank and the like are not listed. lora.save_modules is, because quant.base does not round such
// modules, and data.max_patches is, because images for which a sequence has no patches left have no values.
constexpr std::array kSettings{"quant.",         "lora.init",    "lora.save_modules", "precision.compute",
                               "precision.tf32", "data.seq_len", "data.max_samples",  "data.max_patches"};
// Keys of the model that do not count: paths of files, whose content counts instead, and the choice of
// trained parameters.
constexpr std::array kNotOfModel{"model.init_from", "model.adapter", "model.trainable"};

bool is_setting(const std::string& key) {
  const auto begins = [&](const char* with) { return key.starts_with(with); };
  return std::any_of(kSettings.begin(), kSettings.end(), begins) ||
         (key.starts_with("model.") && std::none_of(kNotOfModel.begin(), kNotOfModel.end(), begins));
}

Json settings_of(Config config, const std::string& weights) {
  Json all{{"weights", weights.empty() ? str("random, of run.seed = ", config.run.seed) : weights}};
  // config.json also says how 4-bit weights are rounded.
  if (!config.init_from.empty() && !is_gguf(config.init_from))
    all["model"] = fingerprint({config.init_from + "/config.json"});
  if (!config.adapter.empty())
    all["adapter"] = fingerprint({str(config.adapter, '/', kAdapterStem, ".safetensors"),
                                  str(config.adapter, '/', kAdapterConfigName)});
  for (const auto& [key, value] : config_values(config))
    if (is_setting(key)) all[key] = value;
  return all;
}

}  // namespace

std::string reference_settings(const Config& config, const std::string& weights) {
  return json_text(settings_of(config, weights));
}

std::string Reference::File::path() const { return kept_path(tokens, identity, ".reference"); }

Reference::Reference(const RunSetup& setup, const RunInputs& inputs, World& world)
    : setup_(setup), world_(world) {
  if (!setup.config.loss.has_reference()) return;
  std::string identities;
  succeed_together(world, [&] {
    Json settings = settings_of(setup.config, weights_of(setup.config, inputs.prints));
    const auto add = [&](const TokenFile& file, const std::string& print) {
      settings["tokens"] = print;
      files_.push_back({file.path(), json_text(settings)});
    };
    for (size_t i = 0; i < inputs.train.files.size(); ++i) add(inputs.train.files[i], inputs.prints.train[i]);
    for (size_t i = 0; i < inputs.eval.size(); ++i) add(inputs.eval[i].files.front(), inputs.prints.eval[i]);
    for (const File& file : files_) identities += file.identity + '\n';
  });
  if (world.local_rank() == 0)
    for (const File& file : files_) note_use(file.path());
  agree(world, identities, "the reference of the loss", "every rank must start from the same weights");
  const auto missing = [](const File& file) { return !fs::exists(file.path()); };
  const std::array<double, 1> mine{std::any_of(files_.begin(), files_.end(), missing) ? 1.0 : 0.0};
  for (const double any : world.all_gather(mine, "missing references")) is_missing_ |= any != 0;
}

void Reference::make(Engine& engine) {
  if (!is_missing_) return;
  succeed_together(world_, [&] {
    for (const File& file : files_)
      make_kept_folder(file.path(), str("copy ", file.tokens, " to a folder that can be written"));
  });
  std::set<std::string> made;  // training and evaluation may read the same file
  for (const File& file : files_)
    if (made.insert(file.path()).second) make(file, engine);
  world_.barrier("the reference");
}

// Every rank gathers all values, and the first rank of each host writes them.
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
        std::vector<LaneExample> examples;
        sequences.append_examples(sequence, 0, examples);
        for (const LaneExample& example : examples)
          for (int64_t t = example.begin; t + 1 < example.end; ++t)
            column[static_cast<size_t>(example.piece.begin + t + 1 - example.begin)] =
                static_cast<float>(-losses_of_row[t]);
      }
    }
  }
  if (world_.local_rank() == 0) write_token_column(file.path(), file.identity, column);
  if (world_.rank() == 0)
    log_info(file.path(), ": the log-probabilities of ", file.tokens,
             " under the initial weights; kept for later runs");
}

void open_columns(const AnswerLoss& loss, const Reference& reference, RunInputs& inputs, SharedSums& sums) {
  if (columns_of(loss).empty()) return;
  std::vector<std::string> paths;
  for (const Reference::File& file : reference.files()) paths.push_back(file.path());
  const auto add = [&](const RunData& data) {
    for (const TokenFile& file : data.files)
      paths.insert(paths.end(), {advantages_path(file.path()), logprobs_path(file.path())});
  };
  add(inputs.train);
  for (const RunData& data : inputs.eval) add(data);
  sums.sum(paths);
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
