#include "bench/op_bench.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <istream>
#include <iterator>
#include <ostream>

#include "bench/fp8_cases.h"
#include "bench/harness.h"
#include "bench/report.h"
#include "kernels/tuned_products.h"
#include "runtime/parallel.h"
#include "runtime/sha256.h"
#include "runtime/whole_file.h"

namespace flatshard::bench {
namespace {

// The cases of all ops, and on a GPU those of FP8 products.
std::vector<Case> cases_of(Device device, Scale scale) {
  std::vector<Case> cases = all_cases(scale);
  if (device.is_cuda()) std::ranges::move(fp8_cases(scale), std::back_inserter(cases));
  return cases;
}

// The machine, its ceilings and the harness, shared by all cases.
struct Bench {
  explicit Bench(const OpOptions& o)
      : machine(this_machine(o.device)),
        ceilings(measure_ceilings(o.device, o.small ? kSmallCeilings : CeilingSizes{})),
        harness(o.device, cases_of(o.device, Scale::test), ceilings, limits(o)) {}

  Limits limits(const OpOptions& o) const {
    return {.seconds = o.seconds, .cache_bytes = o.small ? 1 : machine.cache_bytes};
  }

  Machine machine;
  Ceilings ceilings;
  Harness harness;
};

constexpr const char* kTuned = " tuned";  // follows the shape of a case that used timed algorithms

// Times the algorithms of all products of these cases. Returns them as the text of a file (tuned_products.h).
std::string tune(const std::vector<Case>& cases, Device device) {
  check(device.is_cuda(), "--tuned times algorithms of a GPU: add --device cuda");
  forget_planned_products();
  for (const Case& c : cases) plan(c, device);
  StreamSet streams(device);
  return tune_products(streams.add("compute"), "", "");
}

// The results of each case in the round whose time is the median.
std::vector<Result> median_rounds(const std::vector<Result>& results, int rounds) {
  const size_t cases = results.size() / static_cast<size_t>(rounds);
  std::vector<Result> medians;
  for (size_t i = 0; i < cases; ++i) {
    std::vector<Result> of_case;
    for (size_t at = i; at < results.size(); at += cases) of_case.push_back(results[at]);
    std::sort(of_case.begin(), of_case.end(),
              [](const Result& a, const Result& b) { return a.seconds.median < b.seconds.median; });
    medians.push_back(of_case[of_case.size() / 2]);
  }
  return medians;
}

// The bytes that a case writes, of all its outputs.
std::vector<unsigned char> written_bytes(const Case& c, const Setup& setup) {
  std::vector<unsigned char> all;
  for (const Arg& arg : c.args)
    if (arg.role == Role::output || arg.role == Role::updated) {
      const std::vector<unsigned char> bytes = setup.bytes(arg.name);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  return all;
}

bool equal(const std::vector<unsigned char>& a, const std::vector<unsigned char>& b) {
  constexpr int64_t kBlock = 1 << 20;
  std::atomic<bool> differ = false;
  parallel_blocks(std::ssize(a), kBlock, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>(end - begin);
    if (std::memcmp(a.data() + begin, b.data() + begin, count) != 0) differ = true;
  });
  return !differ;
}

}  // namespace

std::vector<Case> op_cases(const OpOptions& o) {
  std::vector<Case> cases = cases_of(o.device, o.small ? Scale::vm : Scale::bench);
  if (!o.device.is_cuda()) std::erase_if(cases, [](const Case& c) { return c.needs_gpu; });
  if (!o.detail) std::erase_if(cases, [](const Case& c) { return c.is_detail; });
  return select_cases(std::move(cases), o.words);
}

int time_ops(const OpOptions& o, std::ostream& out) {
  const std::vector<Case> cases = op_cases(o);
  Bench bench(o);
  std::vector<Result> results;
  const auto write_json = [&] {  // the first call fails early if the file cannot be written
    if (!o.json_file.empty()) write_whole_file(o.json_file, to_json(bench.machine, bench.ceilings, results));
  };
  write_json();
  const std::string tuned = o.tuned ? tune(cases, o.device) : "";
  const Table table(cases);
  out << head_lines(bench.machine, bench.ceilings) << '\n' << table.header() << std::endl;
  const auto measure = [&](const Case& c, const char* how) {
    results.push_back(bench.harness.measure(c));
    results.back().shape += how;
    out << table.line(results.back()) << std::endl;
    write_json();
  };
  for (int round = 0; round < o.rounds; ++round)
    for (const Case& c : cases) {
      measure(c, "");
      if (!o.tuned) continue;
      use_tuned_products(o.device, tuned, "");
      measure(c, kTuned);
      use_tuned_products(o.device, "", "");
    }
  if (o.rounds > 1) {
    out << "\nmedians of " << o.rounds << " rounds\n" << table.header() << '\n';
    for (const Result& r : median_rounds(results, o.rounds)) out << table.line(r) << '\n';
  }
  out << '\n' << drift_lines(bench.ceilings) << summary_lines(results) << std::flush;
  const auto bad = [](const Result& r) { return r.skipped.empty() && !r.accuracy.passed(); };
  return std::any_of(results.begin(), results.end(), bad) ? 1 : 0;
}

int repeat_ops(const OpOptions& o, int times, std::ostream& out) {
  bool all_equal = true;
  for (const Case& c : op_cases(o)) {
    if (o.device.is_cuda() && !c.has_cuda_kernel) {
      out << label(c) << ": skipped: no CUDA kernel" << std::endl;
      continue;
    }
    Setup setup(c, {.device = o.device});
    std::vector<unsigned char> first;
    int different = 0;
    for (int run = 0; run < times; ++run) {
      setup.reset();  // outputs are poisoned again
      setup.run();
      std::vector<unsigned char> bytes = written_bytes(c, setup);
      if (run == 0)
        first = std::move(bytes);
      else if (!equal(first, bytes))
        ++different;
    }
    Sha256 sha;
    sha.add(first.data(), first.size());
    out << label(c) << ": " << times << " runs, ";
    different == 0 ? out << "one result" : out << "DIFFERENT: " << different << " unlike the first";
    out << ", SHA-256 " << sha.hex().substr(0, 16) << std::endl;
    all_equal &= different == 0;
  }
  return all_equal ? 0 : 1;
}

void serve_ops(const OpOptions& o, std::istream& in, std::ostream& out) {
  const std::vector<Case> cases = op_cases(o);
  Bench bench(o);
  out << json_line(bench.machine, bench.ceilings) << std::endl;
  for (std::string wanted; std::getline(in, wanted);) {
    const auto c =
        std::find_if(cases.begin(), cases.end(), [&](const Case& each) { return label(each) == wanted; });
    check(c != cases.end(), "there is no case \"", wanted, "\"; --list prints all cases");
    out << json_line(bench.harness.measure(*c)) << std::endl;
  }
}

}  // namespace flatshard::bench
