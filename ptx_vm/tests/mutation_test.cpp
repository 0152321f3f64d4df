// Correct kernels have no findings and the same bits under every schedule; mutations of them are found at the
// broken line under every schedule.

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "ptx_vm/counts.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/samples.h"
#include "source_dir.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

std::vector<Options> schedules() {
  std::vector<Options> all;
  constexpr AsyncTiming kTimings[] = {AsyncTiming::early, AsyncTiming::late, AsyncTiming::random};
  for (const uint32_t resident : {1, 2, 3, 0})
    for (const Schedule schedule :
         {Schedule::in_order, Schedule::reverse, Schedule::round_robin, Schedule::random})
      all.push_back({.schedule = schedule,
                     .seed = resident + 1,
                     .resident_blocks = resident,
                     .async = kTimings[all.size() % 3]});
  // Shared memory aligned as little as may be.
  for (Options& o : all)
    o.shared_shift = o.schedule == Schedule::reverse ? 16 : o.schedule == Schedule::random ? 128 : 0;
  return all;
}

// "samples.cu:57" for every line that ends in a comment with this mutation's name.
std::vector<std::string> marked_lines(const std::string& name) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kSourceDir) + "/ptx_vm/tests")) {
    if (entry.path().extension() != ".cu") continue;
    std::ifstream in(entry.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      const size_t mark = line.find("// finds: ");
      if (mark != std::string::npos &&
          (line.substr(mark + 9) + ' ').find(' ' + name + ' ') != std::string::npos)
        found.push_back(str('/', entry.path().filename().string(), ':', number));
    }
  }
  return found;
}

// Whether one of these lines is named, rather than a line that begins with the same digits.
bool names_one_of(const std::string& where, const std::vector<std::string>& lines) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    const size_t at = where.find(line);
    return at != std::string::npos &&
           !std::isdigit(static_cast<unsigned char>((where + ' ')[at + line.size()]));
  });
}

std::vector<Sample> joined(std::vector<Sample> some, const std::vector<Sample>& others) {
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

void check_found(const Sample& sample) {
  sample.run();
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CAPTURE(found[0].text);
  CHECK(std::find(sample.finds.begin(), sample.finds.end(), found[0].kind) != sample.finds.end());
  if (found[0].kind != FindingKind::launch_limit)
    CHECK(names_one_of(found[0].where, marked_lines(sample.name)));
}

}  // namespace

TEST_CASE("correct kernels give the same bits under every schedule, without findings") {
  for (const Sample& sample : joined(joined(correct_samples(), correct_tensor_samples()),
                                     joined(correct_bulk_samples(), correct_warpgroup_samples()))) {
    CAPTURE(sample.name);
    const std::vector<float> expected = [&] {
      const ScopedOptions scope(schedules().back());
      return sample.run();
    }();
    CHECK(!expected.empty());
    for (const Options& schedule : schedules()) {
      const ScopedOptions scope(schedule);
      CAPTURE(describe(schedule));
      CHECK(sample.run() == expected);
      for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
    }
  }
}

TEST_CASE("a broken kernel is found under every schedule, at the broken line") {
  for (const Sample& sample : joined(joined(broken_samples(), broken_tensor_samples()),
                                     joined(broken_bulk_samples(), broken_warpgroup_samples())))
    for (const Options& schedule : schedules()) {
      const bool needs_one = sample.name == "flag_of_later_block";  // with all blocks resident it would pass
      if (needs_one && (schedule.resident_blocks != 1 || schedule.schedule == Schedule::random)) continue;
      if (sample.name == "base_not_aligned" && schedule.shared_shift == 0)
        continue;  // correct without the shift
      const ScopedOptions scope(schedule);
      CAPTURE(sample.name);
      CAPTURE(describe(schedule));
      if (!sample.right) {
        check_found(sample);
        continue;
      }
      CHECK(sample.run() != sample.right());
      CHECK(findings().empty());
    }
}

TEST_CASE("a tensor-core product equals three loops, element for element") {
  CHECK(correct_tensor_samples()[0].run() == expected_product());
  const ScopedOptions newer({.arch = 90});
  CHECK(correct_warpgroup_samples()[0].run() == expected_warpgroup_product());
}

TEST_CASE("an unswizzled tile gives the same bits, but bank conflicts at the lines that read it") {
  const Sample swizzled = correct_tensor_samples()[0], plain = product_without_swizzle();
  CHECK(plain.run() == swizzled.run());
  const OpCounts best = counts_of([&] { swizzled.run(); }).total();
  CHECK(best.waves == best.least_waves);
  const Counts counts = counts_of([&] { plain.run(); });
  REQUIRE(counts.kernels().size() == 1);
  const KernelCounts& kernel = counts.kernels()[0];
  int conflicts = 0;
  for (uint32_t i = 0; i < kernel.ops.size(); ++i) {
    if (kernel.ops[i].waves == kernel.ops[i].least_waves) continue;
    ++conflicts;
    CHECK(kernel.ops[i].waves == 8 * kernel.ops[i].least_waves);  // eight rows in one set of banks
    CHECK(names_one_of(kernel.kernel->where(i), marked_lines(plain.name)));
  }
  CHECK(conflicts > 0);
}

TEST_CASE("permitted float atomics give different bits with different seeds") {
  const std::vector<Sample> samples = broken_samples();
  const auto sample =
      std::find_if(samples.begin(), samples.end(), [](const Sample& s) { return s.name == "float_atomics"; });
  REQUIRE(sample != samples.end());
  const auto run = [&](uint64_t seed) {
    const ScopedOptions scope(
        {.schedule = Schedule::random, .seed = seed, .may_add_floats = {"column_sums"}});
    return sample->run();
  };
  const std::vector<float> first = run(1);
  CHECK(!first.empty());
  CHECK(run(1) == first);
  CHECK(run(2) != first);
  CHECK(take_findings().empty());
}
