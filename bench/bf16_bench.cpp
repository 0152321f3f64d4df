#include "bench/bf16_bench.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <optional>
#include <sstream>

#include "bench/case.h"
#include "bench/words.h"
#include "kernels/gemm_rows.h"
#include "runtime/processor.h"

namespace flatshard::bench {
namespace {

constexpr int kLeastSamples = 5;
constexpr double kSampleSeconds = 2e-3;  // shorter calls are batched to this time
constexpr double kMargin = 1.05;         // a choice may be slower than the other way by this factor

// One case, set up for one way. Each way plans its own scratch.
class WayOfCase {
 public:
  WayOfCase(const Case& c, Bf16Products way) : way_(way) {
    const ScopedBf16Products scope(way);
    setup_.emplace(c);
    const double once = std::max(seconds_of([&] { setup_->run(); }), 1e-9);  // the first call also prepares
    calls_ = static_cast<int>(std::max(1.0, std::ceil(kSampleSeconds / once)));
  }

  double flops(const Case& c) const { return c.flops(setup_->tensors()); }
  double sample() {
    const ScopedBf16Products scope(way_);
    return seconds_of([&] {
             for (int i = 0; i < calls_; ++i) setup_->run();
           }) /
           calls_;
  }

 private:
  Bf16Products way_;
  std::optional<Setup> setup_;
  int calls_ = 1;
};

Bf16Result measure(const Case& c, double seconds) {
  WayOfCase native(c, Bf16Products::native), widened(c, Bf16Products::widened);
  Bf16Result result{
      .label = label(c), .is_attention = c.op.starts_with("attention"), .flops = native.flops(c)};
  std::vector<double> of_native, of_widened, ratios;
  for (double spent = 0; spent < seconds || std::ssize(ratios) < kLeastSamples;) {
    of_native.push_back(native.sample());
    of_widened.push_back(widened.sample());
    ratios.push_back(of_native.back() / of_widened.back());
    spent += of_native.back() + of_widened.back();
  }
  result.native = spread(of_native);
  result.widened = spread(of_widened);
  result.ratio = spread(ratios);
  return result;
}

// Whether a choice decides the way of this case.
bool has_choice(const Case& c) {
  const bool is_product = c.op == "gemm" && std::any_of(c.args.begin(), c.args.end(), [](const Arg& arg) {
                            return arg.name == "c" && arg.shape[0] > kFewRows;
                          });
  return (is_product || c.op.starts_with("attention")) && c.dtype == DType::bf16 && !c.needs_gpu;
}

// The geometric mean of native / widened over the results of attention, or of the other products.
std::optional<double> mean_ratio(const std::vector<Bf16Result>& results, bool is_attention) {
  double sum = 0;
  int count = 0;
  for (const Bf16Result& r : results)
    if (r.is_attention == is_attention) {
      sum += std::log(r.ratio.median);
      ++count;
    }
  if (count == 0) return std::nullopt;
  return std::exp(sum / count);
}

bool is_fast(Bf16Products way, double ratio) {
  return way == Bf16Products::native ? ratio < kMargin : 1 / ratio < kMargin;
}

const char* name_of(Bf16Products way) { return way == Bf16Products::native ? "native" : "widened"; }

std::string verdict(const char* what, Bf16Products way, std::optional<double> ratio) {
  if (!ratio) return "";
  std::ostringstream out;
  out << what << ": native takes " << std::fixed << std::setprecision(2) << *ratio
      << " of the time of widened; the choice is " << name_of(way) << ": "
      << (is_fast(way, *ratio) ? "right" : "WRONG") << '\n';
  return std::move(out).str();
}

}  // namespace

std::vector<Bf16Result> measure_bf16(const std::vector<std::string>& words, double seconds) {
  std::vector<Bf16Result> results;
  for (const Case& c : all_cases(Scale::bench))
    if (has_choice(c) && contains_all(label(c), words)) results.push_back(measure(c, seconds));
  check(!results.empty(), "no product of bf16 has a label with all these words");
  return results;
}

bool is_right(const Bf16Choice& choice, const std::vector<Bf16Result>& results) {
  const std::optional<double> products = mean_ratio(results, false), attention = mean_ratio(results, true);
  return (!products || is_fast(choice.tiles, *products)) &&
         (!attention || is_fast(choice.attention, *attention));
}

std::string bf16_table(const Bf16Choice& choice, const std::vector<Bf16Result>& results) {
  size_t width = 4;
  for (const Bf16Result& r : results) width = std::max(width, r.label.size());
  const ProcessorKind kind = processor_kind();
  std::ostringstream out;
  out << processor_name() << ", " << kind.vendor << " family " << kind.family << " model " << kind.model
      << ": products of bf16 " << describe(choice) << '\n'
      << std::left << std::setw(static_cast<int>(width)) << "case" << std::right
      << "   native ms  GFLOP/s  widened ms  GFLOP/s  native / widened, p10..p90\n";
  for (const Bf16Result& r : results) {
    out << std::left << std::setw(static_cast<int>(width)) << r.label << std::right << std::fixed;
    for (const Spread* way : {&r.native, &r.widened})
      out << std::setprecision(3) << std::setw(12) << 1e3 * way->median << std::setprecision(0)
          << std::setw(9) << 1e-9 * r.flops / way->median;
    out << std::setprecision(2) << std::setw(10) << r.ratio.median << std::setw(14) << r.ratio.p10 << ".."
        << r.ratio.p90 << '\n';
  }
  out << verdict("products", choice.tiles, mean_ratio(results, false))
      << verdict("attention", choice.attention, mean_ratio(results, true));
  return std::move(out).str();
}

}  // namespace flatshard::bench
