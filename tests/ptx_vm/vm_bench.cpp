// ptx_vm_bench [words...], which is `bench --vm`: the costs of CUDA kernels that the machine can count, and
// the speed at which it runs them. See tests/ptx_vm/README.md.

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>

#include <CLI/CLI.hpp>

#include "bench/harness.h"
#include "runtime/check.h"
#include "source_dir.h"
#include "tests/ptx_vm/counts.h"
#include "tests/ptx_vm/ptx_vm.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;
using bench::Case;

namespace {

constexpr int kRepeats = 15;
constexpr size_t kLines = 8;

double processor_seconds() {  // of this process: other programs do not count
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Median millions of warp instructions a second, all checks on.
double speed_of(bench::Setup& setup) {
  std::vector<double> rates;
  for (int i = 0; i < kRepeats; ++i) {
    const uint64_t before = counters().warp_instructions;
    const double begin = processor_seconds();
    setup.run();
    rates.push_back(static_cast<double>(counters().warp_instructions - before) / 1e6 /
                    (processor_seconds() - begin));
  }
  std::nth_element(rates.begin(), rates.begin() + kRepeats / 2, rates.end());
  return rates[kRepeats / 2];
}

double ratio(double a, double b) { return b == 0 ? 1 : a / b; }
double ratio(uint64_t a, uint64_t b) { return ratio(static_cast<double>(a), static_cast<double>(b)); }

void print_head(int width) {
  std::printf("Multiples of the minimum: bytes moved, 32-byte sectors, shared-memory bank cycles.\n\n");
  std::printf("%-*s %12s %6s %8s %10s %8s %6s %10s\n", width, "", "warp instr", "M/s", "touched", "requested",
              "sectors", "banks", "shared B");
}

// Warp instructions, and their time at the median rate of their cases.
struct Sum {
  double millions = 0, seconds = 0;
};

void print_case(const Case& c, int width, Sum* sum) {
  bench::Setup setup(c, {.device = Device::cuda(0)});
  setup.run();
  const Counts counts = counts_of([&] { setup.run(); });
  const double least = c.min_bytes(setup.tensors());
  const OpCounts total = counts.total();
  uint32_t shared_bytes = 0;
  for (const KernelCounts& kernel : counts.kernels())
    shared_bytes = std::max(shared_bytes, kernel.shared_bytes);
  const double millions = static_cast<double>(total.executed) / 1e6, speed = speed_of(setup);
  sum->millions += millions;
  sum->seconds += millions / speed;
  std::printf("%-*s %12llu %6.1f %8.3f %10.3f %8.3f %6.3f %10u\n", width, bench::label(c).c_str(),
              static_cast<unsigned long long>(total.executed), speed,
              ratio(static_cast<double>(counts.touched_bytes()), least),
              ratio(static_cast<double>(counts.requested_bytes()), least),
              ratio(total.sectors, total.least_sectors), ratio(total.waves, total.least_waves), shared_bytes);
}

// Without the source folder.
std::string shortened(std::string where) {
  const std::string folder = std::string(kSourceDir) + "/";
  for (size_t at = 0; (at = where.find(folder, at)) != where.npos;) where.erase(at, folder.size());
  return where;
}

struct Line {
  uint64_t too_many;
  std::string text;
};

// The instructions that take more sectors or cycles than necessary, worst first.
void print_lines(const Case& c) {
  bench::Setup setup(c, {.device = Device::cuda(0)});
  const Counts counts = counts_of([&] { setup.run(); });
  std::vector<Line> lines;
  for (const KernelCounts& kernel : counts.kernels())
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      const OpCounts& op = kernel.ops[i];
      const std::string where = str("  ", shortened(kernel.kernel->where(static_cast<uint32_t>(i))), ": ",
                                    kernel.kernel->instructions[i]->opcode);
      if (op.sectors > op.least_sectors)
        lines.push_back({op.sectors - op.least_sectors,
                         str(where, ": ", op.sectors, " sectors, ", op.least_sectors, " needed")});
      if (op.waves > op.least_waves)
        lines.push_back({op.waves - op.least_waves,
                         str(where, ": ", op.waves, " bank cycles, ", op.least_waves, " needed")});
    }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.too_many > b.too_many; });
  if (!lines.empty()) std::cout << '\n' << bench::label(c) << '\n';
  for (size_t i = 0; i < std::min(lines.size(), kLines); ++i) std::cout << lines[i].text << '\n';
  if (lines.size() > kLines) std::cout << "  and " << lines.size() - kLines << " more\n";
}

void print_opcodes(const Case& c) {
  bench::Setup setup(c, {.device = Device::cuda(0)});
  const Counts counts = counts_of([&] { setup.run(); });
  for (const KernelCounts& kernel : counts.kernels()) {
    std::cout << '\n'
              << kernel.kernel->name << "\n  " << kernel.launches << " launches, " << kernel.blocks
              << " blocks, " << kernel.executed() << " warp instructions";
    if (kernel.tensor_flops() > 0) std::cout << ", " << kernel.tensor_flops() << " tensor FLOPs";
    std::cout << '\n';
    std::vector<std::pair<uint64_t, std::string>> sorted;
    for (const auto& [opcode, executed] : kernel.by_opcode()) sorted.emplace_back(executed, opcode);
    std::sort(sorted.rbegin(), sorted.rend());
    for (const auto& [executed, opcode] : sorted)
      std::printf("  %12llu  %s\n", static_cast<unsigned long long>(executed), opcode.c_str());
  }
}

int run(const std::vector<std::string>& words, bool list, bool opcodes) {
  std::vector<Case> cases = bench::select_cases(bench::all_cases(bench::Scale::vm), words);
  std::erase_if(cases, [](const Case& c) { return !c.has_cuda_kernel; });
  check(!cases.empty(), "no op with a CUDA twin has a case with these words; --list shows them all");
  size_t width = 0;
  for (const Case& c : cases) width = std::max(width, bench::label(c).size());
  if (list) {
    for (const Case& c : cases) std::cout << bench::label(c) << '\n';
    return 0;
  }
  print_head(static_cast<int>(width));
  Sum sum;
  for (const Case& c : cases) {
    print_case(c, static_cast<int>(width), &sum);
    std::fflush(stdout);
  }
  std::printf("%-*s %12.0f %6.1f\n", static_cast<int>(width), "all", sum.millions * 1e6,
              sum.millions / sum.seconds);
  for (const Case& c : cases) opcodes ? print_opcodes(c) : print_lines(c);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Counts the costs of the CUDA kernels on the PTX machine, without a GPU.");
  std::vector<std::string> words;
  bool list = false, opcodes = false;
  app.add_option("filter", words,
                 "run only cases whose line contains all of these words, such as: rmsnorm bf16");
  app.add_flag("--list", list, "print the cases and exit");
  app.add_flag("--opcodes", opcodes, "print the count of each opcode instead of the most wasteful lines");
  try {
    app.parse(argc, argv);
    return run(words, list, opcodes);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "bench --vm: " << error.what() << '\n';
    return 1;
  }
}
