#include <algorithm>
#include <functional>
#include <limits>
#include <ostream>

#include "checkpoint/float_values.h"
#include "checkpoint/tensor_difference.h"
#include "hub/hf_config.h"
#include "runtime/byte_progress.h"
#include "runtime/text.h"
#include "tools/ckpt/model_output.h"

namespace flatshard {
namespace {

// Counts tensors, and takes a line about each that differs.
struct Tally {
  std::function<void(const std::string& line)> lines;
  int64_t equal = 0, different = 0, only_one = 0;
  double largest = 0;   // largest relative difference of a value; infinity: values that are not comparable
  std::string where{};  // the line about the tensor with this difference

  void add_different(const std::string& line, double size) {
    ++different;
    if (where.empty() || size > largest) largest = size, where = line;
    lines(line);
  }
  void add_only_one(const std::string& line) {
    ++only_one;
    lines(line);
  }
};
constexpr double kNotComparable = std::numeric_limits<double>::infinity();
std::string form_of(const SafetensorsEntry& entry) { return entry.dtype + ' ' + in_brackets(entry.shape); }

std::string describe(const TensorDifference& d, const SafetensorsEntry& a, const SafetensorsEntry& b) {
  const std::string forms = form_of(a) == form_of(b) ? "" : str(form_of(a), " and ", form_of(b), ", ");
  if (!d.comparable) return forms + (forms.empty() ? "the bytes differ" : "not comparable");
  if (d.different == 0) return forms + "equal values with different bits";
  return str(forms, with_commas(d.different), " of ", with_commas(d.elements), " values differ, by at most ",
             d.largest, ", relative ", d.largest_relative);
}

// Codes of 4-bit weights are bytes, whatever dtype the file declares.
SafetensorsEntry as_bytes(SafetensorsEntry entry) {
  entry.dtype = safetensors_name(DType::u8);
  entry.shape = {entry.bytes.size};
  return entry;
}

void diff_sets(const TensorSet& a, const TensorSet* b, Tally& tally, ByteProgress& progress) {
  const QuantizedTensors quantized = quantized_in(a);
  for (const auto& [name, entry] : a.entries) {
    if (!b || !b->entries.contains(name)) {
      tally.add_only_one(str(a.stem, ": ", printable(name), ": only in ", a.tensors.path()));
      continue;
    }
    const SafetensorsEntry* const other = b->entries.at(name);
    const bool are_codes = quantized.weights().contains(name) && form_of(*entry) == form_of(*other);
    const SafetensorsEntry left = are_codes ? as_bytes(*entry) : *entry,
                           right = are_codes ? as_bytes(*other) : *other;
    const int64_t width = left.bytes.size / std::max<int64_t>(1, element_count(left));
    const TensorDifference d =
        difference(left, right, [&](int64_t elements) { progress.add(elements * width); });
    if (d.equal_bits)
      ++tally.equal;
    else
      tally.add_different(str(a.stem, ": ", printable(name), ": ", describe(d, left, right)),
                          d.comparable ? d.largest_relative : kNotComparable);
  }
}

const TensorSet* set_of(const TensorSets& sets, const std::string& stem) {
  for (const TensorSet& set : sets.sets())
    if (set.stem == stem) return &set;
  return nullptr;
}

// Lists the tensors that only the second folder has.
void list_others(const TensorSet* a, const TensorSet& b, Tally& tally) {
  for (const auto& [name, entry] : b.entries)
    if (!a || !a->entries.contains(name))
      tally.add_only_one(str(b.stem, ": ", printable(name), ": only in ", b.tensors.path()));
}
// Compares the values of two models. At least one of them is a GGUF file.
void diff_values(const TensorSets& a, const TensorSets& b, Tally& tally, std::ostream* terminal) {
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  constexpr int64_t kWidth = sizeof(float);
  ByteProgress progress(kWidth * Model(a.config(), tables).parameter_count(), terminal);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const SafetensorsSpec& spec : specs_of(b.config())) shapes[spec.name] = spec.shape;
  const std::unique_ptr<PublishedWeights> left = weights_of(a), right = weights_of(b);
  const auto reader = [](PublishedWeights& weights, const std::string& name) {
    return
        [&weights, name](int64_t first, int64_t count, float* to) { weights.read(name, first, count, to); };
  };
  for (const SafetensorsSpec& spec : specs_of(a.config())) {
    const auto other = shapes.extract(spec.name);
    if (other.empty()) {
      tally.add_only_one(str(spec.name, ": only in ", a.path()));
      continue;
    }
    const SafetensorsEntry one{.name = spec.name, .dtype = "", .shape = spec.shape, .bytes = {}};
    if (other.mapped() != spec.shape) {
      tally.add_different(str(spec.name, ": ", in_brackets(spec.shape), " and ", in_brackets(other.mapped()),
                              ", not comparable"),
                          kNotComparable);
      continue;
    }
    const TensorDifference d =
        difference(element_count(one), reader(*left, spec.name), reader(*right, spec.name),
                   [&](int64_t elements) { progress.add(kWidth * elements); });
    if (d.equal_bits)
      ++tally.equal;
    else
      tally.add_different(str(spec.name, ": ", describe(d, one, one)), d.largest_relative);
  }
  for (const auto& [name, shape] : shapes) tally.add_only_one(str(name, ": only in ", b.path()));
}

}  // namespace

bool diff(const std::string& a, const std::string& b, bool all, const Console& console) {
  const TensorSets left(a), right(b);
  const bool of_values = left.is_gguf() || right.is_gguf();
  for (const TensorSets* sets : {&left, &right})
    check(!of_values || !sets->has_adapters(), sets->path(), ": is an adapter, which a GGUF file is not");
  Tally tally{.lines = [&](const std::string& line) {
    if (all) console.out << line << '\n';
  }};
  if (of_values) {
    diff_values(left, right, tally, console.terminal);
  } else {
    ByteProgress progress(left.bytes(), console.terminal);
    for (const TensorSet& set : left.sets()) diff_sets(set, set_of(right, set.stem), tally, progress);
    for (const TensorSet& set : right.sets()) list_others(set_of(left, set.stem), set, tally);
  }
  if (!all && !tally.where.empty()) console.out << "largest difference: " << tally.where << '\n';
  if (const int64_t lines_left = tally.different + tally.only_one; !all && lines_left > 1)
    console.out << "with --all: " << with_commas(lines_left) << " lines, one of each tensor\n";
  std::vector<std::string> others;
  if (left.state() && right.state()) others = differences(*left.state(), *right.state());
  if (left.state().has_value() != right.state().has_value())
    others.push_back(
        str("only ", (left.state() ? left : right).path(), " is a checkpoint with training state"));
  if (hf_config_json(left.config(), DType::f32) != hf_config_json(right.config(), DType::f32))
    others.push_back(of_values ? "the configs describe different models"
                               : "config.json describes different models");
  for (const std::string& line : others) console.out << printable(line) << '\n';
  console.out << "tensors: " << with_commas(tally.equal) << " equal bit for bit, "
              << with_commas(tally.different) << " different, " << with_commas(tally.only_one)
              << (of_values ? " in one model only" : " in one folder only")
              << "; other differences: " << others.size() << '\n';
  return tally.different + tally.only_one == 0 && others.empty();
}

}  // namespace flatshard
