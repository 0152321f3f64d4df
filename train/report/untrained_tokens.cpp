#include "train/report/untrained_tokens.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "model/names.h"
#include "runtime/check.h"
#include "runtime/log.h"
#include "runtime/median.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "text/tokenizer/tokenizer.h"
#include "train/setup/run_data.h"

namespace flatshard {
namespace {

constexpr int64_t kBlock = int64_t{1} << 20;  // values, or tokens, read at once
constexpr double kNear = 0.1;                 // share of the median distance
constexpr size_t kNamed = 8;                  // most tokens named in a warning

class Embedding {
 public:
  Embedding(PublishedWeights& weights, const ModelConfig& config)
      : weights_(weights),
        name_(param_names(config.family).embedding + ".weight"),
        rows_(config.vocab),
        width_(config.hidden) {}

  int64_t rows() const { return rows_; }
  size_t width() const { return static_cast<size_t>(width_); }

  // Calls take(first row, values of a block of rows) in order.
  template <class Take>
  void each_block(Take&& take) {
    const int64_t at_once = std::max<int64_t>(1, kBlock / width_);
    for (int64_t first = 0; first < rows_; first += at_once) {
      values_.resize(static_cast<size_t>(std::min(at_once, rows_ - first) * width_));
      weights_.read(name_, first * width_, std::ssize(values_), values_.data());
      take(first, std::span<const float>(values_));
    }
  }
  // Calls work(row, its values) for all rows, on all threads.
  template <class Work>
  void each_row(int64_t first, std::span<const float> block, Work&& work) const {
    parallel_for(std::ssize(block) / width_, [&](int64_t i) {
      work(static_cast<size_t>(first + i), block.subspan(static_cast<size_t>(i) * width(), width()));
    });
  }

 private:
  PublishedWeights& weights_;
  std::string name_;
  int64_t rows_, width_;
  std::vector<float> values_;
};

// Features of every row.
struct Features {
  std::vector<size_t> hash;
  std::vector<double> norm, distance;  // norm of the row, and distance from the mean row
};

Features features_of(Embedding& embedding) {
  const auto rows = static_cast<size_t>(embedding.rows());
  Features f{std::vector<size_t>(rows), std::vector<double>(rows), std::vector<double>(rows)};
  std::vector<double> mean(embedding.width());
  embedding.each_block([&](int64_t first, std::span<const float> block) {
    embedding.each_row(first, block, [&](size_t row, std::span<const float> values) {
      const auto* const bytes = reinterpret_cast<const char*>(values.data());
      f.hash[row] = std::hash<std::string_view>()({bytes, values.size_bytes()});
    });
    for (size_t at = 0; at < block.size(); at += mean.size())
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(block[at + i]);
  });
  for (double& m : mean) m /= static_cast<double>(rows);
  embedding.each_block([&](int64_t first, std::span<const float> block) {
    embedding.each_row(first, block, [&](size_t row, std::span<const float> values) {
      double norm = 0, distance = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<double>(values[i]);
        norm += value * value;
        distance += (value - mean[i]) * (value - mean[i]);
      }
      f.norm[row] = std::sqrt(norm);
      f.distance[row] = std::sqrt(distance);
    });
  });
  return f;
}

// Counts how often the file has each token.
void add_uses(const TokenFile& file, std::vector<int64_t>& uses) {
  std::vector<int32_t> tokens;
  for (int64_t at = 0; at < file.size(); at += kBlock) {
    tokens.resize(static_cast<size_t>(std::min(kBlock, file.size() - at)));
    file.read(at, tokens);
    for (const int32_t token : tokens) ++uses[static_cast<size_t>(token)];
  }
}

// "a.tok and 2 more files"
std::string names_of(const std::deque<TokenFile>& files) {
  const int64_t more = std::ssize(files) - 1;
  return files.front().path() +
         (more == 0 ? " contains" : str(" and ", counted(more, "more file"), " contain"));
}

// The run's tokenizer; nothing if it has none that can be read.
std::optional<Tokenizer> tokenizer_of(const Config& config) {
  try {
    return Tokenizer(tokenizer_folder(config));
  } catch (const Error&) {
    return {};
  }
}

// 2 "<|im_end|>"
std::string name_of(int64_t id, const std::optional<Tokenizer>& tokenizer) {
  if (!tokenizer || id >= tokenizer->vocab()) return std::to_string(id);
  return str(id, " \"", tokenizer->decode(std::vector{static_cast<int32_t>(id)}), '"');
}

}  // namespace

std::vector<int64_t> untrained_tokens(PublishedWeights& weights, const ModelConfig& config) {
  Embedding embedding(weights, config);
  const Features f = features_of(embedding);
  const double near = kNear * median(f.distance);
  std::unordered_map<size_t, int64_t> rows_with;
  for (const size_t hash : f.hash) ++rows_with[hash];
  std::vector<int64_t> found;
  for (size_t row = 0; row < f.hash.size(); ++row)
    if (rows_with[f.hash[row]] > 1 || f.norm[row] < near || f.distance[row] < near)
      found.push_back(static_cast<int64_t>(row));
  if (config.vision) std::erase(found, config.vision->image_token);
  return found;
}

void warn_of_untrained_tokens(const std::deque<TokenFile>& files, PublishedWeights& weights,
                              const RunSetup& setup) {
  std::vector<int64_t> found = untrained_tokens(weights, setup.model);
  if (found.empty()) return;
  std::vector<int64_t> uses(static_cast<size_t>(setup.model.vocab));
  for (const TokenFile& file : files) add_uses(file, uses);
  const auto count = [&](int64_t id) { return uses[static_cast<size_t>(id)]; };
  std::erase_if(found, [&](int64_t id) { return count(id) == 0; });
  if (found.empty()) return;
  std::stable_sort(found.begin(), found.end(), [&](int64_t a, int64_t b) { return count(a) > count(b); });
  const std::optional<Tokenizer> tokenizer = tokenizer_of(setup.config);
  std::string names;
  for (size_t i = 0; i < std::min(found.size(), kNamed); ++i)
    names += str(i ? ", " : "", name_of(found[i], tokenizer), " (", counted(count(found[i]), "time"), ')');
  if (found.size() > kNamed) names += str(", and ", found.size() - kNamed, " more");
  const bool frozen = setup.has_adapters() && setup.config.lora.save_modules.empty();
  const char* const remedy =
      frozen
          ? "; adapters do not train them: set lora.save_modules = [\"embed_tokens\", \"lm_head\"], or choose"
          : "; the model learns them from this data alone: train the embeddings too (model.trainable), or "
            "choose";
  log_warning(printable(str(names_of(files), " tokens whose embeddings in ", setup.config.init_from,
                            " look untrained: ", names, remedy,
                            " a chat template of tokens that the model knows (data.chat_template)")));
}

}  // namespace flatshard
