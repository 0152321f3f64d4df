#include <cmath>

#include "planner/files/cluster_file.h"
#include "planner/times/op_times.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

// The whole numbers of a printed shape, such as "256 x 3072 x 768 b^T bias".
std::vector<int64_t> numbers_in(const std::string& shape) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < '0' || shape[i] > '9') continue;
    size_t length = 0;
    numbers.push_back(std::stoll(shape.substr(i, 18), &length));
    i += length;
  }
  return numbers;
}

// Bounds of the numbers in a table, so that no product of them overflows: of an extent, and of the seconds of
// a call.
constexpr int64_t kMostExtent = INT32_MAX;
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 3600;

// Reads the part of an op's shape that op_time() depends on; false if the text has another form.
bool parse_shape(const std::string& shape, OpCall& op) {
  const std::vector<int64_t> numbers = numbers_in(shape);
  const auto says = [&](const char* word) { return shape.find(word) != std::string::npos; };
  if (is_product(op.name)) {
    if (numbers.size() < 3) return false;
    const int64_t flags = (says("a^T") ? 1 : 0) + (says("b^T") || says("w^T") ? 2 : 0);
    op.shape = {numbers[0], numbers[1], numbers[2], flags};
  } else if (is_attention(op.name)) {
    // The form is: sequences * tokens x heads / heads of keys x extent of a head.
    const size_t first = says("*") ? 1 : 0;
    if (numbers.size() < first + 4) return false;
    const int64_t documents = first > 0 ? numbers[0] : 1, rows = documents * numbers[first];
    op.shape = {rows,      numbers[first + 1],    rows, numbers[first + 2], numbers[first + 3],
                documents, says("causal") ? 1 : 0};
  }
  return true;
}

}  // namespace

std::vector<MeasuredOp> read_op_table(const std::string& path, const Cluster& cluster) {
  constexpr int64_t kMostBytes = 16 << 20;
  const nlohmann::json json = parse_json_or_discard<nlohmann::json>(read_whole_file(path, kMostBytes));
  constexpr const char* kWanted = " is not a file of bench --device cuda --json: ";
  check(!json.is_discarded() && json.is_object(), path, kWanted, "it is not a JSON object");
  check(json.contains("cases") && json["cases"].is_array(), path, kWanted, "it has no list \"cases\"");
  std::vector<MeasuredOp> measured;
  for (const nlohmann::json& item : json["cases"]) {
    check(item.is_object(), path, kWanted, "a case is not an object");
    const JsonReader reader(path, item);
    if (!reader.has("seconds")) continue;  // the case was skipped, or its result was wrong
    MeasuredOp found{.op = reader.text("op", ""), .dtype = reader.text("dtype", "")};
    const auto flops = item.find("flops");
    OpCall call{.name = found.op,
                .flops = flops != item.end() && flops->is_number() ? flops->get<double>() : 0,
                .bytes = reader.positive("bytes")};
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      if (found.dtype == str(dtype)) call.dtype = dtype;
    const std::string shape = reader.text("shape", "");
    for (const int64_t extent : numbers_in(shape))
      check(extent <= kMostExtent, path, kWanted, "a case of ", found.op, " has an extent of ", extent,
            ", must be at most ", kMostExtent);
    if (!parse_shape(shape, call)) continue;
    const OpCost cost = cost_of(call, 0);
    check(cost.work > 0 && std::isfinite(cost.work), path, kWanted, "a case of ", found.op, " does nothing");
    found.work = cost.work;
    found.intensity = cost.intensity;
    const double seconds = reader.object("seconds").positive("median");
    check(seconds >= kLeastSeconds && seconds <= kMostSeconds, path, kWanted, "a case of ", found.op,
          " takes ", seconds, " seconds, must be from ", kLeastSeconds, " to ", kMostSeconds);
    found.factor = seconds / op_time(cluster, call, 0).seconds;
    measured.push_back(std::move(found));
  }
  check(!measured.empty(), path, kWanted, "none of its cases has a time");
  return measured;
}

}  // namespace flatshard
