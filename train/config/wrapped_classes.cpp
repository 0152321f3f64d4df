#include "train/config/wrapped_classes.h"

#include <algorithm>
#include <array>
#include <set>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr std::array kFamilies{"GPT2",    "Gemma2", "Gemma3", "Glm4",  "Granite", "Llama",
                               "Mistral", "Olmo2",  "Phi3",   "Qwen2", "Qwen3",   "SmolLM3"};

enum class Kind { block, attention, mlp, unknown };

// Older versions of transformers have a class for each implementation of attention.
Kind kind_of(const std::string& name) {
  for (const std::string family : kFamilies) {
    if (!name.starts_with(family)) continue;
    const std::string part = name.substr(family.size());
    if (part == "DecoderLayer" || part == "Block") return Kind::block;
    if (part == "Attention" || part == "FlashAttention2" || part == "SdpaAttention") return Kind::attention;
    if (part == "MLP") return Kind::mlp;
  }
  return Kind::unknown;
}

}  // namespace

WrappedClasses wrapped_classes(const std::string& names, const std::string& where) {
  WrappedClasses result;
  std::set<std::string> seen;
  std::set<Kind> kinds;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    std::string name = names.substr(begin, end - begin);
    name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
    begin = end + 1;
    if (name.empty() || !seen.insert(name).second) continue;
    const Kind kind = kind_of(name);
    if (kind == Kind::unknown)
      result.unknown += str(result.unknown.empty() ? "" : ", ", printable(name));
    else
      kinds.insert(kind);
  }
  const bool halves = kinds.contains(Kind::attention) && kinds.contains(Kind::mlp);
  check(kinds.contains(Kind::block) || halves, where, ": ", printable(names),
        ": must name a decoder layer such as LlamaDecoderLayer, or attention and MLP such as "
        "LlamaAttention,LlamaMLP; or set parallel.wrap");
  result.wrap = kinds.contains(Kind::block) ? "block" : "attention_mlp";
  return result;
}

}  // namespace flatshard
