// ptx_vm_bench [words...], which is `bench --vm`: the costs of CUDA kernels that the machine can count, of
// single ops, of blocks of models and of training steps, and the speed at which it runs ops. See
// tests/ptx_vm/README.md.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "bench/case.h"
#include "bench/words.h"
#include "ptx_vm/bounds.h"
#include "ptx_vm/ptx_vm.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "source_dir.h"
#include "tests/ptx_vm/model_cases.h"
#include "train/command_line/program.h"

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
void describe_lines(std::ostream& out, const std::string& label, const Counts& counts) {
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
  if (!lines.empty()) out << '\n' << label << '\n';
  for (size_t i = 0; i < std::min(lines.size(), kLines); ++i) out << lines[i].text << '\n';
  if (lines.size() > kLines) out << "  and " << lines.size() - kLines << " more\n";
}

void describe_opcodes(std::ostream& out, const std::string& label, const Counts& counts) {
  out << '\n' << label << '\n';
  for (const KernelCounts& kernel : counts.kernels()) {
    out << kernel.kernel->name << "\n  " << kernel.launches << " launches, " << kernel.blocks << " blocks, "
        << kernel.executed() << " warp instructions";
    if (kernel.tensor_flops() > 0) out << ", " << kernel.tensor_flops() << " tensor FLOPs";
    out << '\n';
    std::vector<std::pair<uint64_t, std::string>> sorted;
    for (const auto& [opcode, executed] : kernel.by_opcode()) sorted.emplace_back(executed, opcode);
    std::sort(sorted.rbegin(), sorted.rend());
    for (const auto& [executed, opcode] : sorted)
      out << "  " << std::setw(12) << executed << "  " << opcode << '\n';
  }
}

using Describe = std::function<void(const std::string& label, const Counts& counts)>;

// The clocks of each unit for a thread block, and the FLOP/s of an H100 whose blocks take as long as the
// slowest unit.
void describe_bounds(std::ostream& out, const Counts& counts, int width, const std::string& label) {
  const auto total = static_cast<double>(counts.total().executed);
  for (const KernelCounts& kernel : counts.kernels()) {
    // Bytes are counted per launch: a kernel is taken to touch its share by instructions.
    const double share = static_cast<double>(kernel.executed()) / total;
    const Bound bound = bound_of(kernel, share * static_cast<double>(counts.touched_bytes()));
    char line[256];
    std::snprintf(line, sizeof line, "%-*s %7llu", width, label.c_str(),
                  static_cast<unsigned long long>(kernel.blocks));
    out << line;
    for (const double clocks : bound.clocks) out << std::setw(9) << std::llround(clocks);
    out << "  " << std::setw(18) << std::left << name_of(bound.unit()) << std::right;
    if (bound.flops > 0) out << std::setw(6) << std::llround(bound.teraflops());
    out << '\n';
  }
}

void count_ops(const std::vector<Case>& cases, int width, const Describe& describe) {
  std::printf("Multiples of the minimum: bytes moved, 32-byte sectors, shared-memory bank cycles.\n\n");
  std::printf("%-*s %12s %6s %8s %10s %8s %6s %10s\n", width, "", "warp instr", "M/s", "touched", "requested",
              "sectors", "banks", "shared B");
  std::ostringstream bounds;
  double all_millions = 0, all_seconds = 0;  // at the median rate of each case
  for (const Case& c : cases) {
    bench::Setup setup(c, {.device = Device::cuda(0)});
    setup.run();
    const Counts counts = counts_of([&] { setup.run(); });
    const double least = c.min_bytes(setup.tensors());
    const OpCounts total = counts.total();
    uint32_t shared_bytes = 0;
    for (const KernelCounts& kernel : counts.kernels())
      shared_bytes = std::max(shared_bytes, kernel.shared_bytes);
    const double millions = static_cast<double>(total.executed) / 1e6, speed = speed_of(setup);
    all_millions += millions;
    all_seconds += millions / speed;
    std::printf("%-*s %12llu %6.1f %8.3f %10.3f %8.3f %6.3f %10u\n", width, bench::label(c).c_str(),
                static_cast<unsigned long long>(total.executed), speed,
                ratio(static_cast<double>(counts.touched_bytes()), least),
                ratio(static_cast<double>(counts.requested_bytes()), least),
                ratio(total.sectors, total.least_sectors), ratio(total.waves, total.least_waves),
                shared_bytes);
    std::fflush(stdout);
    describe(bench::label(c), counts);
    describe_bounds(bounds, counts, width, bench::label(c));
  }
  std::printf("%-*s %12.0f %6.1f\n", width, "all", all_millions * 1e6, all_millions / all_seconds);
  std::printf(
      "\nClocks of a thread block on an H100, by unit, if nothing else delayed it; the unit that limits it, "
      "and the "
      "TFLOP/s\nof tensor cores then (ptx_vm/bounds.h).\n\n");
  std::printf("%-*s %7s %8s %8s %8s %8s %8s  %-18s %6s\n%s", width, "", "blocks", "tensor", "shared",
              "special", "issue", "memory", "limited by", "TFLOP/s", bounds.str().c_str());
}

void count_models(const std::vector<ModelCase>& cases, int width, const Describe& describe) {
  std::printf(
      "Bytes: of every kernel, copy and fill; and these, sectors and bank cycles as multiples of the "
      "minimum. Of\n"
      "matrix products, which are cuBLASLt's: the bytes of their matrices, each read or written "
      "once.\n\n");
  std::printf("%-*s %8s %8s %6s %14s %12s %7s %12s %8s %6s\n", width, "", "launches", "products", "copies",
              "product bytes", "bytes", "x least", "warp instr", "sectors", "banks");
  for (const ModelCase& c : cases) {
    const auto [counts, least] = c.count();
    const OpCounts total = counts.total();
    const std::string over_least =
        least > 0 ? fixed(static_cast<double>(counts.launch_bytes()) / least, 3) : "-";
    std::printf("%-*s %8llu %8llu %6llu %14llu %12llu %7s %12llu %8.3f %6.3f\n", width, c.label.c_str(),
                static_cast<unsigned long long>(counts.launches()),
                static_cast<unsigned long long>(counts.products()),
                static_cast<unsigned long long>(counts.copies()),
                static_cast<unsigned long long>(counts.product_bytes()),
                static_cast<unsigned long long>(counts.launch_bytes()), over_least.c_str(),
                static_cast<unsigned long long>(total.executed), ratio(total.sectors, total.least_sectors),
                ratio(total.waves, total.least_waves));
    std::fflush(stdout);
    describe(c.label, counts);
  }
}

int run(const std::vector<std::string>& words, bool list, bool opcodes) {
  std::vector<Case> ops = bench::all_cases(bench::Scale::vm);
  std::erase_if(
      ops, [&](const Case& c) { return !c.has_cuda_kernel || !bench::contains_all(bench::label(c), words); });
  std::vector<ModelCase> models = model_cases();
  std::erase_if(models, [&](const ModelCase& c) { return !bench::contains_all(c.label, words); });
  std::vector<std::string> labels;
  for (const Case& c : ops) labels.push_back(bench::label(c));
  for (const ModelCase& c : models) labels.push_back(c.label);
  check(!labels.empty(), "no case has these words in its line; --list prints all cases");
  size_t width = 0;
  for (const std::string& label : labels) {
    width = std::max(width, label.size());
    if (list) std::cout << label << '\n';
  }
  if (list) return 0;
  std::ostringstream details;
  const Describe describe = [&](const std::string& label, const Counts& counts) {
    opcodes ? describe_opcodes(details, label, counts) : describe_lines(details, label, counts);
  };
  if (!ops.empty()) count_ops(ops, static_cast<int>(width), describe);
  if (!ops.empty() && !models.empty()) std::printf("\n");
  if (!models.empty()) count_models(models, static_cast<int>(width), describe);
  std::fflush(stdout);
  std::cout << details.str();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words;
  bool list = false, opcodes = false;
  const Command program{
      .name = "bench --vm",
      .about =
          "Counts the costs of the CUDA kernels on the PTX machine, without a GPU: of ops, blocks and steps.",
      .options = {{"filter", &words,
                   "run only cases whose line contains all of these words, such as: rmsnorm bf16"},
                  {"--list", &list, "print the cases and exit"},
                  {"--opcodes", &opcodes,
                   "print the count of each opcode instead of the most wasteful lines"}},
      .run = [&] { return run(words, list, opcodes); }};
  return run_program(program, {argv + 1, argv + argc}, {std::cin, std::cout, std::cerr});
}
