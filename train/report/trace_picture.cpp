#include "train/report/trace_picture.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

struct Span {
  std::string row, name;
  double begin = 0, end = 0;  // microseconds on rank 0's clock
};

// The kinds of spans, in the order of the legend. A span is of the first kind whose `row` and `word` are
// prefixes of its row's name and its own.
struct Kind {
  const char *style, *row, *word, *letter, *meaning;
};
constexpr Kind kKinds[] = {
    {"forward", "compute", "forward", "F", "forward"},
    {"backward", "compute", "backward", "B", "backward"},
    {"update", "compute", "update", "U", "norm, update"},
    {"wait", "compute", "wait", "", "waits"},
    {"gather", "gather", "", "", "gather"},
    {"exchange", "reduce", "all_", "", "exchange"},
    {"exchange", "reduce", "reduce_", "", nullptr},
    {"sum", "reduce", "", "", "sum"},
    {"copy", "copy", "", "", "copy"},
};
constexpr const char* kRows[] = {"compute", "gather", "reduce", "copy"};

const Kind* kind_of(const std::string& row, const std::string& name) {
  for (const Kind& kind : kKinds)
    if (row.starts_with(kind.row) && name.starts_with(kind.word)) return &kind;
  return nullptr;  // a single op inside a stage is not drawn
}

std::string milliseconds(double us) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << us * 1e-3 << " ms";
  return std::move(text).str();
}

std::string escaped(const std::string& text) {
  std::string xml;
  for (const char c : text) xml += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return xml;
}

// This rank's spans that satisfy a condition.
template <class Condition>
std::vector<Span> spans_if(const Trace& trace, const ClockOffset& offset, Condition&& holds) {
  std::vector<Span> found;
  const auto common = [&](Trace::Clock::time_point time) {
    return (std::chrono::duration<double>(time.time_since_epoch()).count() + offset.seconds) * 1e6;
  };
  trace.each_span([&](const std::string& row, const std::string& name, const auto& begin, const auto& end) {
    if (Span span{row, name, common(begin), common(end)}; holds(span)) found.push_back(std::move(span));
  });
  return found;
}

double length_of(const Span& span) { return span.end - span.begin; }

bool is_step(const Span& span) { return span.name.starts_with("step "); }

// The index of the step of median length, the first one ignored if there are others; -1 if there is none.
int64_t median_step(const std::vector<Span>& steps) {
  std::vector<int64_t> order;
  for (int64_t i = steps.size() > 1 ? 1 : 0; i < std::ssize(steps); ++i) order.push_back(i);
  if (order.empty()) return -1;
  const auto length = [&](int64_t i) { return length_of(steps[static_cast<size_t>(i)]); };
  const auto middle = order.begin() + std::ssize(order) / 2;
  std::nth_element(order.begin(), middle, order.end(),
                   [&](int64_t a, int64_t b) { return length(a) < length(b); });
  return *middle;
}

// One step on all ranks.
struct Moment {
  std::string step{};
  double begin = 0, end = 0;        // first rank's begin, and the end of everything drawn
  double measured_end = 0;          // end of the measured step on the last rank
  int ranks = 1, rows_of_rank = 3;  // rows_of_rank: 4 with offload, which has a row of copies
  std::string what{};               // names the ranks
  const StepTimeline* predicted = nullptr;

  int blocks() const { return ranks + (predicted ? static_cast<int>(predicted->ranks.size()) : 0); }
};

// The step of a simulated trace.
Span step_of(const StepTimeline& simulated) {
  const std::vector<Span> steps = spans_if(*simulated.ranks.front(), {}, is_step);
  check(!steps.empty(), "the simulated trace contains no step");
  return steps.front();
}

bool has_copies(const Trace& trace) {
  const std::vector<std::string> rows = trace.rows();
  return std::any_of(rows.begin(), rows.end(),
                     [](const std::string& row) { return row.starts_with("copy"); });
}

// The spans of a rank that the picture of this moment may show.
std::vector<Span> spans_within(const Trace& trace, const ClockOffset& offset, const Moment& m) {
  return spans_if(trace, offset,
                  [&](const Span& s) { return !is_step(s) && s.end > m.begin && s.begin < m.end; });
}

// The moment to draw, or nothing on all ranks if rank 0 has no step.
std::optional<Moment> agree_on_moment(const Trace& trace, World& world, const ClockOffset& offset,
                                      const StepTimeline* predicted) {
  const std::vector<Span> steps = spans_if(trace, offset, is_step);
  const auto mine = static_cast<double>(median_step(steps));
  const auto index = static_cast<int64_t>(world.all_gather({&mine, 1}, "the step to draw").front());
  if (index < 0) return {};
  const Span& step = steps.at(static_cast<size_t>(index));  // every rank has a span for every step
  const double times[] = {step.begin, step.end, has_copies(trace) ? 4.0 : 3.0,
                          predicted ? length_of(step_of(*predicted)) : 0.0};
  const std::vector<double> all = world.all_gather(times, "the times of the step to draw");
  Moment m{.step = step.name,
           .begin = step.begin,
           .end = step.end,
           .ranks = world.size(),
           .what = str("on ", counted(world.size(), "rank")),
           .predicted = predicted};
  for (size_t i = 0; i < all.size(); i += std::size(times)) {
    m.begin = std::min(m.begin, all[i]);
    m.end = std::max(m.end, all[i + 1]);
    m.rows_of_rank = std::max(m.rows_of_rank, static_cast<int>(all[i + 2]));
  }
  m.measured_end = m.end;
  m.end = std::max(m.end, m.begin + all[3]);
  return m;
}

constexpr double kLeft = 132, kWidth = 960, kRight = 12, kTop = 66, kRow = 20, kPitch = 24, kRankGap = 12;

// The classes are scoped, since the report page contains the picture.
constexpr char kStyle[] = R"(<style>
  .timeline text { font: 12px system-ui, sans-serif; fill: #24292f }
  .timeline .quiet { fill: #57606a } .timeline .line { stroke: #d0d7de } .timeline .track { fill: #f3f5f7 }
  .timeline .page { fill: #ffffff } .timeline .on { fill: #ffffff; font-size: 11px; text-anchor: middle }
  .timeline .forward { fill: #2f7fd6 } .timeline .backward { fill: #d9772b }
  .timeline .update { fill: #8a63d2 } .timeline .gather { fill: #2f9e63 } .timeline .sum { fill: #e79aa8 }
  .timeline .exchange { fill: #cf3f5c } .timeline .copy { fill: #0f8b8d }
  .timeline .wait { fill: #ffffff; stroke: #8c959f; stroke-dasharray: 2 2 }
  @media (prefers-color-scheme: dark) {
    .timeline text { fill: #e6edf3 } .timeline .quiet { fill: #9198a1 } .timeline .line { stroke: #3d444d }
    .timeline .track { fill: #1b222b } .timeline .page { fill: #0d1117 } .timeline .on { fill: #ffffff }
    .timeline .sum { fill: #8f4a57 } .timeline .wait { fill: #0d1117 }
  }
</style>
)";

class Picture {
 public:
  explicit Picture(const Moment& m) : m_(m) { out_ << std::fixed << std::setprecision(1); }

  // Everything except the ranks' rows; the end is "</svg>".
  std::string frame() {
    const double height = row_top(m_.blocks() - 1, m_.rows_of_rank - 1) + kPitch + 30;
    out_ << "<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kWidth << ' '
         << height << "\" width=\"" << kWidth << "\" height=\"" << height << "\">\n"
         << kStyle << "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
    std::string title = str(m_.step, ", ", milliseconds(m_.measured_end - m_.begin), ", ", m_.what);
    if (m_.predicted)
      title +=
          str("; predicted ", milliseconds(length_of(step_of(*m_.predicted))), " (", m_.predicted->what, ')');
    text(kRight, 20, "", title);
    legend();
    ticks(height - 30);
    return std::move(out_).str();
  }
  // The rows of the rank at this place, below its name.
  std::string rows(int place, const std::string& name, const std::vector<Span>& spans) {
    tracks(place, name);
    // Waits are drawn on top of the spans that contain them.
    for (const bool waits : {false, true})
      for (const Span& s : spans) draw(place, s, waits);
    return std::move(out_).str();
  }

 private:
  double row_top(int place, int row) const {
    return kTop + place * (m_.rows_of_rank * kPitch + kRankGap) + row * kPitch;
  }
  double x_of(double time) const {
    const double inside = std::clamp(time, m_.begin, m_.end);
    return kLeft + (inside - m_.begin) / (m_.end - m_.begin) * (kWidth - kLeft - kRight);
  }
  void text(double x, double y, const std::string& style, const std::string& words) {
    out_ << "<text x=\"" << x << "\" y=\"" << y << "\"" << (style.empty() ? "" : " class=\"" + style + '"')
         << ">" << words << "</text>\n";
  }
  void box(const char* style, double x, double y, double width, double height, const std::string& title) {
    out_ << "<rect class=\"" << style << "\" x=\"" << x << "\" y=\"" << y << "\" width=\"" << width
         << "\" height=\"" << height << "\" rx=\"2\"";
    if (title.empty())
      out_ << "/>\n";
    else
      out_ << "><title>" << title << "</title></rect>\n";
  }

  void legend() {
    double x = kRight;
    for (const Kind& kind : kKinds) {
      if (!kind.meaning || (kind.row == std::string("copy") && m_.rows_of_rank < 4)) continue;
      box(kind.style, x, 33, 22, 14, "");
      text(x + 11, 44, "on", kind.letter);
      text(x + 28, 44, "quiet", kind.meaning);
      x += 48 + 6.4 * static_cast<double>(std::string(kind.meaning).size());
    }
  }

  // A time axis in milliseconds below the rows, with 5 to 12 round ticks.
  void ticks(double bottom) {
    const double length = (m_.end - m_.begin) * 1e-3;
    double step = std::pow(10.0, std::floor(std::log10(length / 5)));
    for (const double factor : {2.0, 2.5, 2.0})
      if (length / step > 12) step *= factor;
    for (double at = 0; at <= length; at += step) {
      const double x = x_of(m_.begin + at * 1e3);
      out_ << "<line class=\"line\" x1=\"" << x << "\" x2=\"" << x << "\" y1=\"" << kTop - 6 << "\" y2=\""
           << bottom << "\"/>\n";
      constexpr double kLabel = 52;
      if (x + kLabel < kWidth) text(x + 3, bottom + 14, "quiet", str(at, " ms"));
    }
  }

  void tracks(int place, const std::string& name) {
    for (int row = 0; row < m_.rows_of_rank; ++row) {
      const double top = row_top(place, row);
      if (row == 0) text(kRight, top + 14, "", name);
      text(kLeft - 58, top + 14, "quiet", kRows[row]);
      box("track", kLeft, top, kWidth - kLeft - kRight, kRow, "");
    }
  }

  void draw(int place, const Span& s, bool waits) {
    const Kind* kind = kind_of(s.row, s.name);
    if (!kind || (std::string(kind->style) == "wait") != waits) return;
    const auto row = std::find(std::begin(kRows), std::end(kRows), std::string(kind->row)) - kRows;
    const double top = row_top(place, static_cast<int>(row)), x = x_of(s.begin);
    const double width = std::max(0.5, x_of(s.end) - x - 0.5);
    box(kind->style, x, top, width, kRow, str(escaped(s.name), ", ", std::lround(s.end - s.begin), " us"));
    const std::string number = s.name.substr(std::min(s.name.size(), std::string(kind->word).size() + 1));
    const std::string label = *kind->letter ? kind->letter + number : "";
    if (width > 9.0 + 6.0 * static_cast<double>(label.size())) text(x + width / 2, top + 14, "on", label);
  }

  const Moment& m_;
  std::ostringstream out_;
};

}  // namespace

void write_trace_picture(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset,
                         const StepTimeline* predicted) {
  const std::optional<Moment> moment = agree_on_moment(trace, world, offset, predicted);
  check(moment || world.rank() != 0, path, ": the trace contains no step to draw");
  if (!moment) return;
  std::string mine = Picture(*moment).rows(world.rank(), str("rank ", world.rank()),
                                           spans_within(trace, offset, *moment)),
              all;
  world.collect([&] { return std::exchange(mine, ""); }, [&](int, const std::string& rows) { all += rows; });
  if (world.rank() != 0) return;
  for (size_t i = 0; predicted && i < predicted->ranks.size(); ++i) {
    const Trace& simulated = *predicted->ranks[i];
    const double start = std::chrono::duration<double>(simulated.start().time_since_epoch()).count();
    all += Picture(*moment).rows(world.size() + static_cast<int>(i), i == 0 ? "predicted" : str("stage ", i),
                                 spans_within(simulated, {.seconds = moment->begin * 1e-6 - start}, *moment));
  }
  write_whole_file(path, Picture(*moment).frame() + all + "</svg>\n");
}

void write_trace_picture(const std::string& path, const std::vector<const Trace*>& traces,
                         const std::string& what) {
  Moment moment{.ranks = static_cast<int>(traces.size()), .what = what};
  // Each trace begins at a time of its own.
  const auto offset_of = [&](const Trace& trace) {
    const auto difference = traces.front()->start() - trace.start();
    return ClockOffset{.seconds = std::chrono::duration<double>(difference).count()};
  };
  const std::vector<Span> steps = spans_if(*traces.front(), {}, is_step);
  check(!steps.empty(), path, ": the trace contains no step to draw");
  moment.step = steps.front().name, moment.begin = steps.front().begin,
  moment.end = moment.measured_end = steps.front().end;
  for (const Trace* const trace : traces)
    if (has_copies(*trace)) moment.rows_of_rank = 4;
  std::string rows;
  for (size_t i = 0; i < traces.size(); ++i)
    rows += Picture(moment).rows(static_cast<int>(i), str("rank ", traces[i]->process()),
                                 spans_within(*traces[i], offset_of(*traces[i]), moment));
  write_whole_file(path, Picture(moment).frame() + rows + "</svg>\n");
}

}  // namespace flatshard
