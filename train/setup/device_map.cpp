#include "train/setup/device_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "model/model.h"
#include "model/names.h"
#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// A part of the model: its layers [first, end), with their work and bytes.
struct Part {
  int first, end;
  double work = 0;
  int64_t bytes = 0;
};

const ParamList& list_of(const Model& model, int layer) {
  return model.param_lists()[static_cast<size_t>(model.param_list_of(layer))];
}

int64_t bytes_of(const ParamList& list) {
  int64_t bytes = 0;
  for (const ParamSpec& spec : list.specs())
    bytes += spec.shape.size() * size_of(spec.dtype.value_or(DType::bf16));
  return bytes;
}

// The parts to divide: all except a tied embedding. The layers that read images form one part with the
// embedding.
std::vector<Part> parts_of(const Model& model, int64_t seq_len) {
  const std::vector<double> work = work_of_layers(model, seq_len);
  const int last = model.layer_count() - 1, blocks = model.embedding_layer() + 1,
            width = model.layers_of_block();
  std::vector<Part> parts;
  for (int first = *model.config().tied ? blocks : 0; first <= last;) {
    Part part{first, first == 0 ? blocks : first == last ? first + 1 : first + width};
    for (int layer = part.first; layer < part.end; ++layer) {
      part.work += work[static_cast<size_t>(layer)];
      part.bytes += bytes_of(list_of(model, layer));
    }
    parts.push_back(part);
    first = part.end;
  }
  return parts;
}

// The mean bytes of the modules that hold parameters.
int64_t leaf_mean(const Model& model) {
  std::set<std::string> leaves;
  int64_t bytes = 0;
  for (const ParamList& list : model.param_lists()) {
    for (const ParamSpec& spec : list.specs()) leaves.insert(spec.name.substr(0, spec.name.rfind('.')));
    bytes += bytes_of(list);
  }
  return bytes / std::ssize(leaves);
}

// Whether a name begins with a prefix that ends at a dot or at the name's end.
bool is_below(const std::string& name, const std::string& prefix) {
  return prefix.empty() ||
         (name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '.'));
}

// The pipeline stage of a part by the longest prefix of its parameters' names.
int stage_of(const Part& part, const Model& model, const std::map<std::string, double>& map,
             std::set<std::string>& used) {
  int stage = -1;
  std::string of;  // name of the part's first parameter
  for (int i = part.first; i < part.end; ++i)
    for (const ParamSpec& spec : list_of(model, i).specs()) {
      const auto* best = static_cast<const std::pair<const std::string, double>*>(nullptr);
      for (const auto& entry : map)
        if (is_below(spec.name, entry.first) && (!best || entry.first.size() > best->first.size()))
          best = &entry;
      check(best != nullptr, "parallel.device_map: no prefix covers ", spec.name);
      used.insert(best->first);
      if (stage < 0) stage = static_cast<int>(best->second), of = spec.name;
      check(stage == static_cast<int>(best->second), "parallel.device_map: ", of, " is on stage ", stage,
            " and ", spec.name, " on stage ", best->second,
            ": a block, the head with the last norm, and tied embeddings with "
            "their head must each be on one stage");
    }
  return stage;
}

std::vector<int> mapped_ends(const std::map<std::string, double>& map, const Model& model,
                             const std::vector<Part>& parts, int stages) {
  for (const auto& [prefix, stage] : map)
    check(stage == std::floor(stage) && stage >= 0 && stage < stages, "parallel.device_map: \"", prefix,
          "\" is on stage ", stage, ", must be a whole number below parallel.stages = ", stages);
  std::set<std::string> used;
  std::vector<int> ends(static_cast<size_t>(stages), 0);
  int before = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int stage = stage_of(parts[i], model, map, used);
    check(stage >= before, "parallel.device_map: ", list_of(model, parts[i].first).specs().front().name,
          " is on stage ", stage, ", but what precedes it is on stage ", before,
          ": the stages must follow the order of the model");
    before = stage;
    for (size_t s = static_cast<size_t>(stage); s < ends.size(); ++s) ends[s] = static_cast<int>(i) + 1;
  }
  for (const auto& [prefix, stage] : map)
    check(used.contains(prefix), "parallel.device_map: \"", prefix,
          "\" is a prefix of no parameter, or of none that no "
          "longer prefix covers; names look like ",
          list_of(model, 1).specs().front().name);
  return ends;
}

// The limit of each stage but the last, for "sequential:SIZE".
std::vector<int64_t> sequential_limits(const std::string& map, int stages, int chunks) {
  const std::string sequential = "sequential:";
  check(map.starts_with(sequential), "parallel.device_map is \"", map,
        "\", must be auto, balanced, balanced_low_0, sequential:SIZE with the size of a stage, such as "
        "sequential:20GB, or a table of prefixes");
  check(chunks == stages,
        "parallel.device_map = \"sequential:SIZE\" gives each stage one range of layers, but "
        "parallel.schedule = \"interleaved\" needs several: use another schedule, or \"auto\"");
  const int64_t limit =
      parse_bytes("the size in parallel.device_map = \"sequential:SIZE\"", map.substr(sequential.size()));
  return std::vector<int64_t>(static_cast<size_t>(chunks - 1), limit);
}

// Moves the ends of empty ranges, so that each has at least one of `count` parts.
void leave_none_empty(std::vector<int>& ends, int count) {
  const int ranges = static_cast<int>(ends.size());
  for (int i = 0; i < ranges; ++i) {
    int& end = ends[static_cast<size_t>(i)];
    const int before = i == 0 ? 0 : ends[static_cast<size_t>(i - 1)];
    end = std::clamp(end, before + 1, count - (ranges - 1 - i));
  }
}

std::vector<int> part_ends(const DeviceMap& map, const Model& model, const std::vector<Part>& parts,
                           int stages, int chunks) {
  if (const auto* table = std::get_if<std::map<std::string, double>>(&map)) {
    check(chunks == stages,
          "parallel.device_map is a table, which gives each stage one range of layers, but "
          "parallel.schedule = \"interleaved\" needs several: use another schedule, or \"auto\"");
    return mapped_ends(*table, model, parts, stages);
  }
  const auto* kind = std::get_if<DeviceMapKind>(&map);
  if (kind && *kind == DeviceMapKind::automatic) {
    std::vector<double> work;
    for (const Part& part : parts) work.push_back(part.work);
    return even_ends(work, chunks);
  }
  std::vector<int64_t> sizes;
  for (const Part& part : parts) sizes.push_back(part.bytes);
  std::vector<int> ends = filled_ends(
      sizes, kind ? balanced_limits(sizes, leaf_mean(model), chunks, *kind == DeviceMapKind::balanced_low_0)
                  : sequential_limits(std::get<std::string>(map), stages, chunks));
  leave_none_empty(ends, static_cast<int>(sizes.size()));
  return ends;
}

}  // namespace

std::vector<double> work_of_layers(const Model& model, int64_t seq_len) {
  const ModelConfig& c = model.config();
  const int last = model.layer_count() - 1, first = model.embedding_layer() + 1;
  const std::string embedding = param_names(c.family).embedding + ".weight";
  std::vector<double> work;
  for (int layer = 0; layer <= last; ++layer) {
    double sum = 0;
    for (const ParamSpec& spec : list_of(model, layer).specs()) {
      const bool multiplies = spec.role == ParamRole::weight || spec.role == ParamRole::adapter ||
                              (layer == last && spec.name == embedding);
      if (multiplies && !(layer + 1 == first && *c.tied))
        sum += (spec.trainable ? 6.0 : 4.0) * static_cast<double>(spec.parameter_count());
    }
    const bool attends = layer >= first && layer < last && (layer - first) % model.layers_of_block() == 0;
    if (attends) sum += 6.0 * static_cast<double>(c.heads * c.head_dim * seq_len);
    work.push_back(sum);
  }
  return work;
}

std::vector<int> even_ends(std::span<const double> sizes, int count) {
  const size_t n = sizes.size(), ranges = static_cast<size_t>(count);
  check(n >= ranges, n, " parts cannot be divided into ", ranges, " ranges");
  std::vector<double> before(n + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), before.begin() + 1);
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // best[k][i]: the largest sum where the first i parts are k ranges; from[k][i]: the begin of the last of
  // these ranges.
  std::vector best(ranges + 1, std::vector<double>(n + 1, kNone));
  std::vector from(ranges + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t k = 1; k <= ranges; ++k) {
    // The more parts lie before the last range, the larger the sums there, and the smaller the last one: the
    // least maximum is next to where the two cross, which moves right with i.
    size_t cross = k - 1;
    for (size_t i = k; i <= n; ++i) {
      const auto largest = [&](size_t at) { return std::max(best[k - 1][at], before[i] - before[at]); };
      while (cross + 1 < i && best[k - 1][cross] < before[i] - before[cross]) ++cross;
      size_t begin = cross;
      while (begin > k - 1 && largest(begin - 1) <= largest(begin)) --begin;
      best[k][i] = largest(begin), from[k][i] = begin;
    }
  }
  std::vector<int> ends(ranges);
  for (size_t k = ranges, i = n; k > 0; i = from[k][i], --k) ends[k - 1] = static_cast<int>(i);
  return ends;
}

std::vector<int> filled_ends(std::span<const int64_t> sizes, std::span<const int64_t> limits) {
  std::vector<int> ends;
  size_t at = 0;
  for (const int64_t limit : limits) {
    for (int64_t used = 0; at < sizes.size() && used + sizes[at] <= limit; ++at) used += sizes[at];
    ends.push_back(static_cast<int>(at));
  }
  ends.push_back(static_cast<int>(sizes.size()));
  return ends;
}

std::vector<int64_t> balanced_limits(std::span<const int64_t> sizes, int64_t mean, int devices, bool low_0) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const int sharing = low_0 && devices > 1 ? devices - 1 : devices;
  const int64_t each =
      total / sharing + static_cast<int64_t>(1.25 * static_cast<double>(std::max(largest, mean)));
  std::vector<int64_t> limits(static_cast<size_t>(devices - 1), each);
  if (low_0 && devices > 1) limits.front() = std::max<int64_t>(0, total - each * (devices - 1));
  return limits;
}

std::vector<int> chunk_ends(const DeviceMap& map, const Model& model, int64_t seq_len, int stages,
                            int chunks) {
  const std::vector<Part> parts = parts_of(model, seq_len);
  check(std::ssize(parts) >= chunks, "parallel.stages = ", stages,
        chunks > stages ? str(" times parallel.chunks = ", chunks / stages) : "", " divides the model into ",
        chunks, " ranges of layers, but it has only ", parts.size(), " parts (",
        *model.config().tied ? "" : "embedding, ", "blocks, head): use fewer");
  std::vector<int> ends = part_ends(map, model, parts, stages, chunks);
  for (size_t i = 0; i < ends.size(); ++i)
    check(ends[i] > (i == 0 ? 0 : ends[i - 1]), "parallel.device_map gives range ", i, " of ", chunks,
          " no layers: use \"auto\", or fewer parallel.stages");
  for (int& end : ends) end = parts[static_cast<size_t>(end) - 1].end;
  return ends;
}

}  // namespace flatshard
