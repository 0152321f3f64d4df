#include "runtime/hub_id.h"

#include <filesystem>
#include <regex>

#include "runtime/check.h"

namespace flatshard {

std::string download_advice(const std::string& path) {
  static const std::regex id("([A-Za-z0-9][A-Za-z0-9_.-]*)/([A-Za-z0-9][A-Za-z0-9_.-]*)");
  std::smatch parts;
  if (!std::regex_match(path, parts, id)) return "";
  const std::string first = parts[1];
  std::error_code none;
  if (first == "data" || first == "models" || first == "runs" || std::filesystem::exists(first, none))
    return "";
  return str("; if it is a model on the Hugging Face hub, download it, and give its folder: hf download ",
             path, " --local-dir ", parts[2].str());
}

}  // namespace flatshard
