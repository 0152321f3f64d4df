#include <ostream>

#include "checkpoint/checksums.h"
#include "runtime/text.h"
#include "train/report/byte_progress.h"
#include "train/save/checkpoint_names.h"
#include "train/tools/ckpt_commands.h"
#include "train/tools/tensor_sets.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// Runs a part of the verification; an Error is one thing that is wrong.
template <class Work>
void note(std::vector<std::string>& problems, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
}

}  // namespace

bool verify(const std::string& folder, const Console& console) {
  const std::string path = folder_meant(folder).string();
  const bool has_sums = fs::exists(fs::path(path) / Checksums::kFileName) ||
                        step_of(fs::path(path).filename().string()).has_value();
  std::vector<std::string> problems;
  int64_t bytes = 0;
  if (has_sums)
    note(problems, [&] {
      const Checksums sums = Checksums::read(path);
      bytes = sums.bytes();
      ByteProgress progress(bytes, console.terminal);
      problems = sums.damages(path, [&](int64_t seen) { progress.add(seen); });
      check_complete(path, sums);
    });
  note(problems, [&] {
    for (const std::string& line : mismatches(TensorSets(path))) problems.push_back(line);
  });
  for (const std::string& problem : problems) console.out << printable(problem) << '\n';
  console.out << path << ": "
              << (!problems.empty() ? str(problems.size(), problems.size() == 1 ? " problem" : " problems")
                  : has_sums        ? str("all is well, ", human_bytes(bytes), " have their checksums")
                                    : "names and shapes are those of config.json; there are no checksums")
              << '\n';
  return problems.empty();
}

}  // namespace flatshard
