#include "runtime/processor.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

namespace flatshard {
namespace {

// The lines "key : value" of the first processor in /proc/cpuinfo.
std::map<std::string, std::string> first_processor(std::istream& cpuinfo) {
  std::map<std::string, std::string> values;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    values[key] = line.substr(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
  }
  return values;
}

}  // namespace

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  const auto values = first_processor(in);
  const auto name = values.find("model name");
  return name == values.end() ? "unknown processor" : name->second;
}

ProcessorKind processor_kind() {
  std::ifstream in("/proc/cpuinfo");
  return read_processor_kind(in);
}

ProcessorKind read_processor_kind(std::istream& cpuinfo) {
  const auto values = first_processor(cpuinfo);
  const auto number = [&](const char* key) {
    int64_t value = 0;
    if (const auto found = values.find(key); found != values.end())
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    return value;
  };
  const auto vendor = values.find("vendor_id");
  if (vendor == values.end()) return {};
  return {vendor->second, number("cpu family"), number("model")};
}

}  // namespace flatshard
