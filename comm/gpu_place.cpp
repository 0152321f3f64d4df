#include "comm/gpu_place.h"

#include <map>
#include <sstream>

#include "runtime/check.h"
#include "runtime/gpu.h"

namespace flatshard {

GpuPlace place_on_gpu(const std::vector<std::vector<std::string>>& visible, int rank) {
  GpuPlace place;
  std::map<std::string, std::vector<size_t>> users;
  for (size_t other = 0; other < visible.size(); ++other) {
    if (visible[other].empty()) continue;
    size_t best = 0;
    for (size_t i = 1; i < visible[other].size(); ++i)
      if (users[visible[other][i]].size() < users[visible[other][best]].size()) best = i;
    const std::string& gpu = visible[other][best];
    if (static_cast<int>(other) == rank) place.index = static_cast<int>(best);
    if (place.shared.empty() && !users[gpu].empty())
      place.shared = str("ranks ", users[gpu].front(), " and ", other, " both use ", gpu);
    users[gpu].push_back(other);
  }
  return place;
}

GpuPlace place_on_gpu(World& world) {
  std::string mine;
  for (const std::string& gpu : visible_gpus()) mine += gpu + '\n';
  std::vector<std::vector<std::string>> visible;
  for (const std::string& text : world.all_gather_texts(mine, "the GPUs")) {
    std::istringstream lines(text);
    visible.emplace_back();
    for (std::string gpu; std::getline(lines, gpu);) visible.back().push_back(gpu);
  }
  return place_on_gpu(visible, world.rank());
}

}  // namespace flatshard
