#include "bench/op_bench.h"

#include <algorithm>
#include <istream>
#include <ostream>

#include "bench/harness.h"
#include "bench/report.h"
#include "runtime/whole_file.h"

namespace flatshard::bench {
namespace {

// The machine, its ceilings and the harness, shared by all cases.
struct Bench {
  explicit Bench(const OpOptions& o)
      : machine(this_machine(o.device)),
        ceilings(measure_ceilings(o.device, o.small ? kSmallCeilings : CeilingSizes{})),
        harness(o.device, all_cases(Scale::test), ceilings, limits(o)) {}

  Limits limits(const OpOptions& o) const {
    return {.seconds = o.seconds, .cache_bytes = o.small ? 1 : machine.cache_bytes};
  }

  Machine machine;
  Ceilings ceilings;
  Harness harness;
};

}  // namespace

std::vector<Case> op_cases(const OpOptions& o) {
  std::vector<Case> cases = all_cases(o.small ? Scale::vm : Scale::bench);
  if (!o.device.is_cuda()) std::erase_if(cases, [](const Case& c) { return c.needs_gpu; });
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
  const Table table(cases);
  out << head_lines(bench.machine, bench.ceilings) << '\n' << table.header() << std::endl;
  for (const Case& c : cases) {
    results.push_back(bench.harness.measure(c));
    out << table.line(results.back()) << std::endl;
    write_json();
  }
  out << '\n' << drift_lines(bench.ceilings) << summary_lines(results) << std::flush;
  const auto bad = [](const Result& r) { return r.skipped.empty() && !r.accuracy.passed(); };
  return std::any_of(results.begin(), results.end(), bad) ? 1 : 0;
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
