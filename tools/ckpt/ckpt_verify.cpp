#include <algorithm>
#include <ostream>
#include <set>

#include "checkpoint/checksums.h"
#include "checkpoint/float_values.h"
#include "runtime/byte_progress.h"
#include "runtime/text.h"
#include "tools/ckpt/model_output.h"
#include "train/save/checkpoint_names.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// Runs a part of the verification and records an Error as a problem.
template <class Work>
void note(std::vector<std::string>& problems, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
}

// Reports floating-point tensors with nonfinite values. Codes of 4-bit weights are bytes, whatever dtype the
// file declares.
void note_non_finite(const TensorSet& set, std::vector<std::string>& problems) {
  std::vector<float> values(static_cast<size_t>(kValueBlock));
  std::set<const SafetensorsEntry*> codes;
  const QuantizedTensors quantized = quantized_in(set);
  for (const auto& [name, weight] : quantized.weights()) codes.insert(set.entries.at(name));
  for (const auto& [name, entry] : set.tensors.entries()) {
    const int64_t all = float_dtype(*entry) && !codes.contains(entry) ? element_count(*entry) : 0;
    for (int64_t first = 0; first < all; first += kValueBlock) {
      const int64_t count = std::min(kValueBlock, all - first);
      read_floats(*entry, first, count, values.data());
      const std::optional<int64_t> at = first_non_finite({values.data(), static_cast<size_t>(count)});
      if (!at) continue;
      problems.push_back(str(set.tensors.path(), ": ", name, ": element ", first + *at, " is ",
                             values[static_cast<size_t>(*at)], ", must be finite"));
      break;
    }
  }
}

// Reads the values of a GGUF file, and reports the first nonfinite value of each tensor.
void note_non_finite(const TensorSets& gguf, std::vector<std::string>& problems) {
  const std::unique_ptr<PublishedWeights> weights = weights_of(gguf);
  std::vector<float> values(static_cast<size_t>(kValueBlock));
  for (const SafetensorsSpec& spec : specs_of(gguf.config()))
    note(problems, [&] {
      const int64_t all = element_count({.name = spec.name, .dtype = "", .shape = spec.shape, .bytes = {}});
      for (int64_t first = 0; first < all; first += kValueBlock)
        weights->read(spec.name, first, std::min(kValueBlock, all - first), values.data());
    });
}

}  // namespace

bool verify(const std::string& folder, const Console& console) {
  const std::string path = folder_meant(folder).string();
  const fs::path sums_file = fs::path(path) / Checksums::kFileName;
  const bool had_sums = fs::exists(sums_file),
             needs_sums = had_sums || step_of(fs::path(path).filename().string()).has_value();
  std::vector<std::string> problems;
  int64_t bytes = 0;
  if (needs_sums)
    note(problems, [&] {
      const Checksums sums = Checksums::read(path);
      bytes = sums.bytes();
      ByteProgress progress(bytes, console.terminal);
      problems = sums.damages(path, [&](int64_t seen) { progress.add(seen); });
      check_complete(path, sums);
    });
  note(problems, [&] {
    const TensorSets sets(path);
    for (const std::string& line : mismatches(sets)) problems.push_back(line);
    if (sets.is_gguf() && problems.empty()) note_non_finite(sets, problems);
    for (const TensorSet& set : sets.sets()) note_non_finite(set, problems);
  });
  const bool is_there = is_model_path(path) && (!had_sums || fs::exists(sums_file));
  check(problems.empty() || is_there, path,
        ": was removed while it was read, as a run that saves removes old checkpoints (checkpoint.keep): "
        "verify again");
  for (const std::string& problem : problems) console.out << printable(problem) << '\n';
  console.out << path << ": "
              << (!problems.empty() ? str(problems.size(), problems.size() == 1 ? " problem" : " problems")
                  : needs_sums
                      ? str("no problems; checksums of ", human_bytes(bytes), " match")
                      : str("no problems; names and shapes match ",
                            fs::is_directory(path) ? "config.json" : "its keys", ", no checksums to verify"))
              << '\n';
  return problems.empty();
}

}  // namespace flatshard
