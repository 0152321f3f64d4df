#include "hub/adapter_base.h"

#include <filesystem>
#include <vector>

#include "hub/adapter_config.h"
#include "hub/gguf/gguf_file.h"
#include "hub/hf_config.h"
#include "hub/model_folder.h"
#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

std::string in_quotes(const std::string& name) { return '"' + printable(name) + '"'; }

namespace fs = std::filesystem;
using nlohmann::json;

QuantConfig parse_quant(const JsonReader& in) {
  const std::string compute = in.text("compute", "auto");
  QuantConfig quant{.base = named<FourBitKind>(in.text("base", "")),
                    .block = in.size("block"),
                    .nested = in.flag("double", false),
                    .compute = named<Precision>(compute),
                    .skip = in.texts("skip", "a list of texts"),
                    .fp32_norms = in.flag("fp32_norms", false)};
  in.must(quant.base.has_value(), "base", "\"nf4\" or \"fp4\"");
  in.must(is_four_bit_block(quant.block), "block",
          str("a power of two from ", kSmallestFourBitBlock, " to ", kLargestFourBitBlock));
  in.must(quant.compute || compute == "auto", "compute", "\"auto\", \"fp32\", \"bf16\" or \"fp16\"");
  return quant;
}

// Existing models that may be the base, the likeliest first.
std::vector<std::string> candidates(const std::string& adapter, const std::string& name,
                                    const std::string& recorded) {
  std::vector<std::string> found;
  const auto add = [&](const fs::path& path) {
    if (is_model_path(path.string())) found.push_back(path.string());
  };
  add(name);
  add(recorded);
  if (name.empty() || fs::path(name).is_absolute()) return found;
  fs::path folder = fs::absolute(adapter).lexically_normal();
  for (; folder.has_relative_path(); folder = folder.parent_path()) add((folder / name).lexically_normal());
  return found;
}

// The difference between a folder and the recorded base; "" if they are equal.
std::string difference(const AdapterBase& recorded, const std::string& base) {
  const std::string found = fingerprint_like(recorded.weights, weights_files(base));
  return found == recorded.weights
             ? ""
             : str("its weights are ", found, ", the adapter was trained on ", recorded.weights);
}

[[noreturn]] void fail_on(const std::string& adapter, const std::string& base, const std::string& why,
                          const AdapterBase& recorded, const BaseAdvice& advice) {
  fail(str(base, ": is not the base of ", adapter, ": ", why, ", in ", recorded.folder,
           is_model_path(recorded.folder) ? "" : ", which is gone", ": ", advice.right, ", or ",
           advice.other));
}

}  // namespace

std::string adapter_base_json(const AdapterBase& base) {
  const QuantConfig& quant = base.quant;
  json quantization;
  if (quant.base)
    quantization = {{"base", name_of(*quant.base)},
                    {"block", quant.block},
                    {"compute", quant.compute ? name_of(*quant.compute) : "auto"},
                    {"double", quant.nested},
                    {"skip", quant.skip},
                    {"fp32_norms", quant.fp32_norms}};
  return json_text(json{{"folder", base.folder}, {"quantization", quantization}, {"weights", base.weights}},
                   2, InvalidUtf8::replaced) +
         '\n';
}

std::optional<AdapterBase> read_adapter_base(const std::string& adapter) {
  const std::string path = adapter + '/' + kAdapterBaseName;
  std::error_code none;
  if (!fs::exists(fs::symlink_status(path, none))) return {};
  const JsonReader in(path, checked_json<json>(read_whole_file(path, kMostHfConfigBytes), path));
  AdapterBase base{.folder = in.text("folder"), .weights = in.text("weights")};
  if (in.has("quantization")) base.quant = parse_quant(in.object("quantization"));
  return base;
}

std::vector<std::string> weights_files(const std::string& model) {
  if (is_gguf(model)) return {model};
  std::vector<std::string> paths;
  const TensorFolder tensors(model, kWeightsStem);
  for (const auto& file : tensors.files()) paths.push_back(file->path());
  return paths;
}

std::string find_base(const std::string& adapter, bool other, const BaseAdvice& advice) {
  const std::string path = adapter + '/' + kAdapterConfigName;
  std::vector<std::string> warnings;
  const std::string name = read_adapter_config(path, warnings).base;
  const std::optional<AdapterBase> recorded = read_adapter_base(adapter);
  if (!recorded || other) {
    check(is_model_path(name) || (recorded && is_model_path(recorded->folder)), path,
          ": base_model_name_or_path is ",
          name.empty() ? "null, as after training on top of another adapter, where the base is what ckpt "
                         "merge-adapter makes of the two"
                       : in_quotes(name) + ", which is neither a folder nor a GGUF file",
          ": ", advice.right);
    return is_model_path(name) ? name : recorded->folder;
  }
  const std::vector<std::string> found = candidates(adapter, name, recorded->folder);
  check(!found.empty(), path, ": base_model_name_or_path is ", in_quotes(name),
        ", which is neither a folder nor a GGUF file here; the run took it from ", recorded->folder,
        ", which is gone: ", advice.right);
  std::string first;  // the difference of the first candidate
  for (const std::string& base : found) {
    std::string why;
    try {
      why = difference(*recorded, base);
    } catch (const Error& error) {
      why = str("its weights cannot be read (", error.what(), ')');
    }
    if (why.empty()) return base;
    if (first.empty()) first = why;
  }
  fail_on(adapter, found.front(), first, *recorded, advice);
}

void check_base(const std::string& adapter, const std::string& base, const BaseAdvice& advice) {
  const std::optional<AdapterBase> recorded = read_adapter_base(adapter);
  if (!recorded) return;
  if (const std::string why = difference(*recorded, base); !why.empty())
    fail_on(adapter, base, why, *recorded, advice);
}

}  // namespace flatshard
