#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "checkpoint/float_values.h"
#include "hub/gguf/gguf_model.h"
#include "runtime/text.h"
#include "tools/ckpt/ckpt_commands.h"
#include "tools/ckpt/tensor_sets.h"
#include "train/plan/plan_text.h"
#include "train/save/checkpoint_names.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

std::string evaluation(const TrainState& state) {
  std::string text = state.eval_loss ? str("loss ", *state.eval_loss) : "none at this step";
  if (state.best) text += str(", best so far ", state.best->loss, " at step ", state.best->step);
  return text;
}

void inspect_run(const std::string& run, std::ostream& out) {
  const std::string latest = latest_in(run).filename().string();
  out << "run         " << run << '\n';
  for (const int64_t step : steps_in(run)) {
    const std::string name = name_of_step(step);
    std::string said;
    try {
      const TrainState state = read_train_state((fs::path(run) / name / TrainState::kFileName).string());
      said = str(with_commas(state.tokens), " tokens, evaluation ", evaluation(state));
    } catch (const Error& error) {
      said = printable(error.what());
    }
    out << "  " << name << "  " << said << (name == latest ? ", latest" : "") << '\n';
  }
}

// The number of parameters of the model: a 4-bit weight counts as its dequantized values, not as its parts.
int64_t parameters_of(const TensorSet& set, const QuantizedTensors& quantized) {
  const std::vector<std::string> names = quantized.names();
  const std::set<std::string> parts(names.begin(), names.end());
  int64_t parameters = 0;
  for (const auto& [name, entry] : set.entries)
    if (!parts.contains(name)) parameters += element_count(*entry);
  for (const auto& [name, weight] : quantized.weights()) parameters += weight.elements();
  return parameters;
}

// Prints a line for each format.
void inspect_quantized(const QuantizedTensors& quantized, std::ostream& out) {
  std::map<std::string, int64_t> counts;
  for (const auto& [name, weight] : quantized.weights()) {
    const FourBitFormat& format = weight.format;
    ++counts[str(name_of(format.kind), ", blocks of ", format.block, format.nested ? ", nested scales" : "")];
  }
  for (const auto& [format, count] : counts)
    out << "4-bit       " << counted(count, "weight") << ": " << format << '\n';
}

void inspect_set(const TensorSet& set, bool all, std::ostream& out) {
  size_t widest = 0;
  int64_t elements = 0, bytes = 0;
  std::map<std::string, int64_t> dtypes;  // number of tensors by dtype
  for (const auto& [name, entry] : set.tensors.entries()) {
    widest = std::max(widest, printable(name).size());
    ++dtypes[entry->dtype];
    elements += element_count(*entry);
    bytes += entry->bytes.size;
  }
  std::string kinds;
  for (const auto& [dtype, count] : dtypes)
    kinds += str(kinds.empty() ? "" : ", ", dtype, dtypes.size() > 1 ? str(" x", count) : "");
  out << set.stem << ": " << counted(std::ssize(set.tensors.entries()), "tensor") << " (" << kinds << "), "
      << with_commas(elements) << " values, " << human_bytes(bytes) << " in "
      << counted(std::ssize(set.tensors.files()), "file") << '\n';
  if (!all) return;
  for (const auto& [name, entry] : set.tensors.entries()) {
    const std::string shown = printable(name);
    out << "  " << shown << std::string(widest - shown.size() + 2, ' ') << entry->dtype << ' '
        << in_brackets(entry->shape) << "  " << human_bytes(entry->bytes.size) << '\n';
  }
}

constexpr size_t kShownText = 60;

struct ShownValue {
  std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  std::string operator()(int64_t n) const { return str(n); }
  std::string operator()(double x) const { return str(x); }
  std::string operator()(const std::string& text) const {
    const bool cut = text.size() > kShownText;
    return str('"', printable(text.substr(0, kShownText)), cut ? "\"..." : "\"");
  }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    return counted(std::ssize(values), "value");
  }
};

// The description of a model in the file, also for models that Flatshard cannot read.
std::string described(const GgufFile& file) {
  try {
    return describe_model(read_gguf_config(file));
  } catch (const Error& error) {
    return str("not supported: ", printable(error.what()));
  }
}

void inspect_gguf(const std::string& path, bool all, std::ostream& out) {
  const GgufFile file(path);
  const std::string* type = file.find_value<std::string>("general.type");
  int64_t values = 0;
  size_t widest = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    values += tensor.values();
    widest = std::max(widest, printable(tensor.name).size());
  }
  out << "GGUF file   " << path << ", " << human_bytes(file.bytes()) << '\n';
  if (!type || *type == "model") out << "config      " << described(file) << '\n';
  out << "tensors     " << file.tensors().size() << " (" << gguf_types(file) << "), " << with_commas(values)
      << " values\n"
      << "metadata    " << counted(std::ssize(file.metadata()), "key") << '\n';
  for (const auto& [key, value] : file.metadata())
    if (all || key.starts_with("general.") || key.starts_with("adapter.") || key == "tokenizer.ggml.model" ||
        key == "tokenizer.ggml.pre")
      out << "  " << printable(key) << " = " << std::visit(ShownValue(), value) << '\n';
  if (!all) return;
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string name = printable(tensor.name);
    out << "  " << name << std::string(widest - name.size() + 2, ' ') << ggml_type_name(tensor.type) << ' '
        << in_brackets(tensor.shape) << '\n';
  }
}

}  // namespace

void inspect(const std::string& folder, bool all, const Console& console) {
  std::ostream& out = console.out;
  if (is_gguf(folder)) return inspect_gguf(folder, all, out);
  if (is_run(folder)) return inspect_run(folder, out);
  const TensorSets sets(folder);
  const QuantizedTensors quantized = quantized_in(sets.sets().front());
  out << (sets.state() ? "checkpoint  " : "model       ") << sets.path() << '\n'
      << "config      " << describe_model(sets.config()) << "; "
      << with_commas(parameters_of(sets.sets().front(), quantized)) << " parameters\n";
  inspect_quantized(quantized, out);
  if (const std::optional<TrainState>& state = sets.state())
    out << "step        " << with_commas(state->step) << ", after " << with_commas(state->tokens)
        << " tokens, written by " << counted(state->ranks, "rank") << "\nevaluation  " << evaluation(*state)
        << '\n';
  for (const TensorSet& set : sets.sets()) inspect_set(set, all, out);
}

}  // namespace flatshard
