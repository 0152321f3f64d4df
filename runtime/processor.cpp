#include "runtime/processor.h"

#include <algorithm>
#include <fstream>

namespace flatshard {

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": "), line.size() - 2) + 2);
  return "unknown processor";
}

}  // namespace flatshard
