#pragma once
// LoRA trains a low-rank update of a linear layer whose weight stays frozen:
//   y = x w^T + scale (dropout(x) a^T) b^T      a (rank, in), b (out, rank)
// This header determines which layers get an adapter, and its properties, by the rules of Hugging Face PEFT.
// model/adapter.h computes with the adapters.

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "model/config.h"
#include "runtime/named.h"
#include "runtime/param.h"

namespace flatshard {

class Model;

// A regular expression that must match a whole path, or a list of paths or their ends after a dot.
using ModulePatterns = std::variant<std::string, std::vector<std::string>>;

inline constexpr int64_t kMostLoraRank = 8192;

// Initial values of the A factors, with B zero; adapter: both from a published adapter.
enum class LoraInit { kaiming, gaussian, adapter };
constexpr auto value_names(LoraInit) { return std::array{"kaiming", "gaussian", "adapter"}; }

// The biases that are trained.
enum class LoraBias { none };
constexpr auto value_names(LoraBias) { return std::array{"none"}; }

struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 16;
  double dropout = 0;
  ModulePatterns targets = "all-linear";  // every linear layer except the output head and experts
  ModulePatterns exclude = std::vector<std::string>{};
  // Block indices; empty: all. A layer whose whole path is listed in targets has an adapter in any block.
  std::vector<int64_t> layers{};
  // Exceptions from rank and alpha: regular expressions for the end of a path.
  std::map<std::string, double> rank_pattern{}, alpha_pattern{};
  bool rslora = false;  // scale = alpha / sqrt(rank) instead of alpha / rank
  LoraInit init = LoraInit::kaiming;
  LoraBias bias = LoraBias::none;
  std::vector<std::string> save_modules{};  // modules that are trained and saved in full
};

double lora_scale(double alpha, int64_t rank, bool rslora);

// Returns whether the targets are the word "all-linear", in upper or lower case.
bool is_all_linear(const ModulePatterns& targets);

// Whether a path is that of a layer of an expert, or of all experts of a block.
bool is_of_experts(const std::string& path);
// The paths of a model's linear layers in model order, without a tied head, which has no weight of its own,
// and without the routers of a mixture.
std::vector<std::string> linear_layers(const Model& model);
// The paths of a model's modules that have parameters of their own: linear layers, norms, embeddings, the
// head.
std::vector<std::string> leaf_modules(const Model& model);

// Returns whether a list entry of PEFT names this path: it must be the path, or its end after a dot.
bool names_module(const std::string& entry, const std::string& path);

// Returns whether one of the entries names this module, or a module that contains it, by whole components of
// its path.
bool is_inside(const std::string& path, const std::vector<std::string>& entries);

struct AdapterChoice {
  Adapters adapters;
  std::vector<std::string> warnings;  // patterns that match nothing, one sentence each
};

// The adapters of these layers, whatever the targets are.
AdapterChoice adapters_of(const LoraConfig& lora, const std::vector<std::string>& paths);

// The adapters of a model's layers. Throws an Error if nothing matches, if a pattern is not a regular
// expression, or if a module cannot have an adapter.
AdapterChoice choose_adapters(const LoraConfig& lora, const Model& model);

}  // namespace flatshard
