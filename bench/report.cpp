#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/bf16_products.h"
#include "runtime/check.h"

namespace flatshard::bench {
namespace {

constexpr double kGiga = 1e-9, kMicro = 1e6;

std::string left(const std::string& text, int width) {
  return text + std::string(static_cast<size_t>(std::max(0, width - static_cast<int>(text.size()))), ' ');
}

std::string right(const std::string& text, int width) {
  return std::string(static_cast<size_t>(std::max(0, width - static_cast<int>(text.size()))), ' ') + text;
}

std::string short_exponent(double value) {  // formats like 2e-05
  char text[32];
  std::snprintf(text, sizeof text, "%.0e", value);
  return text;
}

// Returns "97%", followed by a star if this ceiling bounds the case.
std::string share(double rate, double ceiling, bool bounds) {
  if (ceiling <= 0 || rate <= 0) return "- ";
  return str(std::lround(100 * rate / ceiling), '%', bounds ? '*' : ' ');
}

// Returns a change such as "-3%".
std::string change(double from, double to) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.0f%%", 100 * (to / from - 1));
  return text;
}

// Shortens "16384 x 2048 dx+=" to "16384x2048 dx+=".
std::string short_shape(std::string shape) {
  for (size_t at = 0; (at = shape.find(" x ", at)) != shape.npos;) {
    shape.erase(at + 2, 1);
    shape.erase(at, 1);
  }
  return shape;
}

// Returns "of the copy bandwidth: median 93%; least 71% rope_forward 8 x 16 bf16, 80% ..."; "" without cases.
std::string shares_line(const std::vector<Result>& results, bool matrix_bound) {
  constexpr size_t kLeast = 3;
  std::vector<std::pair<double, const Result*>> shares;
  for (const Result& r : results)
    if (r.was_timed() && r.matrix_bound == matrix_bound)
      shares.emplace_back(matrix_bound ? r.flop_rate() / r.matrix_rate : r.byte_rate() / r.copy_rate, &r);
  if (shares.empty()) return "";
  std::sort(shares.begin(), shares.end());
  std::string text = str("of the ", matrix_bound ? "matrix peak" : "copy bandwidth", ": median ",
                         std::lround(100 * shares[shares.size() / 2].first), "%; least");
  for (size_t i = 0; i < std::min(kLeast, shares.size()); ++i)
    text += str(i > 0 ? ", " : " ", std::lround(100 * shares[i].first), "% ", shares[i].second->op, ' ',
                shares[i].second->shape, ' ', shares[i].second->dtype);
  return text + "\n";
}

std::string ceiling_line(const char* name, double scaled, const char* unit, const std::string& how) {
  return str("  ", left(name, 14), right(digits(scaled), 8), ' ', unit, "  (", how, ")\n");
}

std::string drift_line(const char* name, Ceiling& ceiling, const char* unit) {
  const double before = ceiling.first(), after = ceiling.measure();
  return str("  ", left(name, 14), right(digits(before * kGiga), 8), " -> ", digits(after * kGiga), ' ', unit,
             "  (", change(before, after), ")\n");
}

}  // namespace

std::string digits(double value, int significant) {
  const double size = std::abs(value);
  int decimals = significant - 1;
  for (double bound = 10; decimals > 0 && size >= bound - 0.5 * std::pow(10, 1 - decimals); bound *= 10)
    --decimals;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

Table::Table(const std::vector<Case>& cases) : op_width_(2), shape_width_(5) {
  for (const Case& c : cases) {
    op_width_ = std::max(op_width_, static_cast<int>(c.op.size()));
    shape_width_ = std::max(shape_width_, static_cast<int>(short_shape(c.shape).size()));
  }
}

std::string Table::name(const std::string& op, const std::string& shape, const std::string& dtype) const {
  return str(left(op, op_width_), ' ', left(shape, shape_width_), ' ', left(dtype, 4));
}

std::string Table::header() const {
  return str(name("op", "shape", "type"), " |", right("us", 7), right("p10", 5), right("p90", 6), " |",
             right("GB/s", 6), right("%copy", 6), " |", right("GFLOP/s", 7), right("%peak", 6), " |",
             right("floor", 7), right("x", 5), " |", right("err", 6), right("tol", 6));
}

std::string Table::line(const Result& r) const {
  const std::string front = str(name(r.op, short_shape(r.shape), str(r.dtype)), r.disturbed ? " ~" : " |");
  if (!r.skipped.empty()) return front + " skipped: " + r.skipped;
  if (r.accuracy.worst.empty()) return front + " FAILED: no test case checks this op and dtype";
  if (!r.accuracy.passed())
    return str(front, " FAILED: error ", r.accuracy.error, ", tolerance ", r.accuracy.tolerance, " (",
               r.accuracy.worst, ")");
  const Spread& s = r.seconds;
  const double floor = r.floor_seconds();
  return str(front, right(digits(s.median * kMicro), 7), right(change(s.median, s.p10), 5),
             right(change(s.median, s.p90), 6), " |", right(digits(r.byte_rate() * kGiga), 6),
             right(share(r.byte_rate(), r.copy_rate, !r.matrix_bound), 6), " |",
             right(digits(r.flop_rate() * kGiga), 7),
             right(share(r.flop_rate(), r.matrix_rate, r.matrix_bound), 6), " |",
             right(digits(floor * kMicro), 7), right(digits(s.median / floor, 3), 5), " |",
             right(short_exponent(r.accuracy.error), 6), right(short_exponent(r.accuracy.tolerance), 6));
}

std::string head_lines(const Machine& m, const Ceilings& c) {
  std::string text =
      str("flatshard bench on ", m.device, ": ", m.processor, ", ", m.threads,
          m.threads == 1 ? " thread, " : " threads, ", m.cache_bytes >> 20, " MiB last-level cache\n",
          m.compiler, ", ", m.build_type, m.commit.empty() ? "" : ", commit " + m.commit, "\nceilings\n");
  text += ceiling_line("copy", c.copy.first() * kGiga, "GB/s   ", "read + written, " + c.copy.how());
  if (c.read) text += ceiling_line("read", c.read->first() * kGiga, "GB/s   ", "read only, " + c.read->how());
  if (c.f32)
    text += ceiling_line("matrix f32", c.f32->first() * kGiga, "GFLOP/s",
                         c.f32->how() + "; f16 is compared with it too");
  if (c.bf16)
    text += ceiling_line("matrix bf16", c.bf16->first() * kGiga, "GFLOP/s",
                         str(c.bf16->how(), m.device == "cpu" ? str(", ", describe(bf16_products())) : ""));
  if (!c.no_matrix.empty()) text += str("  matrix: ", c.no_matrix, '\n');
  return text +
         "A star marks the ceiling that bounds the case; floor is the least time that it allows, in us.\n"
         "A tilde marks times that other programs on the processors disturbed.\n";
}

std::string drift_lines(Ceilings& c) {
  std::string text = "ceilings at the start and at the end\n" + drift_line("copy", c.copy, "GB/s");
  if (c.read) text += drift_line("read", *c.read, "GB/s");
  if (c.f32) text += drift_line("matrix f32", *c.f32, "GFLOP/s");
  if (c.bf16) text += drift_line("matrix bf16", *c.bf16, "GFLOP/s");
  return text;
}

std::string summary_lines(const std::vector<Result>& results) {
  const auto count = [&](auto&& holds) { return std::count_if(results.begin(), results.end(), holds); };
  const auto timed = count([](const Result& r) { return r.was_timed(); });
  const auto skipped = count([](const Result& r) { return !r.skipped.empty(); });
  const auto early = count([](const Result& r) { return r.out_of_time; });
  std::string text = str(timed, " timed, ", results.size() - timed - skipped, " failed, ", skipped,
                         " skipped\n", shares_line(results, false), shares_line(results, true));
  if (early > 0) text += str(early, " reached the time limit before 20 samples (--seconds)\n");
  const auto disturbed = count([](const Result& r) { return r.disturbed; });
  if (disturbed > 0)
    text += str("warning: other programs used the processors during ", disturbed,
                disturbed == 1 ? " case; its time is" : " cases; their times are", " not reliable\n");
  return text;
}

}  // namespace flatshard::bench
