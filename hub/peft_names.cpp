#include "hub/peft_names.h"

#include <array>
#include <cctype>

#include "model/config.h"

namespace flatshard {
namespace {

struct Prefixes {
  const char *in_files, *of_peft;
};

constexpr std::array<Prefixes, 2> kQwen{{{"visual.", "model.visual."}, {"model.", "model.language_model."}}};

constexpr char kMixtral[] = "mixtral", kInFiles[] = "block_sparse_moe", kOfPeft[] = "mlp";

// Replaces `from` with `to` wherever it is a whole word.
std::string renamed(std::string text, const std::string& from, const std::string& to) {
  const auto in_word = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
    const bool whole = !(at > 0 && in_word(at - 1)) && !in_word(at + from.size());
    if (whole) text.replace(at, from.size(), to);
    at += whole ? to.size() : from.size();
  }
  return text;
}

}  // namespace

bool has_peft_prefixes(const std::string& family) { return flatshard::family(family).tower.rotary; }

std::string peft_name(const std::string& family, const std::string& name) {
  if (family == kMixtral) return renamed(name, kInFiles, kOfPeft);
  if (has_peft_prefixes(family))
    for (const auto& [in_files, of_peft] : kQwen)
      if (name.starts_with(in_files)) return of_peft + name.substr(std::string(in_files).size());
  return name;
}

std::string name_in_files(const std::string& family, const std::string& name) {
  if (family == kMixtral) return renamed(name, kOfPeft, kInFiles);
  if (has_peft_prefixes(family))
    for (const auto& [in_files, of_peft] : kQwen)
      if (name.starts_with(of_peft)) return in_files + name.substr(std::string(of_peft).size());
  return name;
}

std::string last_component(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace flatshard
