#include "train/report/trace_picture.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iomanip>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

using Json = nlohmann::json;

struct Span {
  int process = 0, row = 0;
  std::string name;
  double begin = 0, end = 0;  // microseconds
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
  return nullptr;  // single ops inside a stage
}

std::string escaped(const std::string& text) {
  std::string xml;
  for (const char c : text) xml += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return xml;
}

bool is_step(const std::string& name) { return name.starts_with("step "); }

// Visits the events of a file with one event per line.
template <class Visit>
void each_event(const std::string& path, Visit&& visit) {
  std::ifstream in(path);
  check(in.is_open(), path, ": cannot open");
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with(',')) line.pop_back();
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_object() && event.contains("ph")) visit(event);
  }
}

Span span_of(const Json& event) {
  const double begin = event.at("ts"), duration = event.at("dur");
  return {event.at("pid"), event.at("tid"), event.at("name"), begin, begin + duration};
}

// The spans of one step on all ranks.
struct Moment {
  std::string step;
  double begin = 0, end = 0;
  int ranks = 1, rows_of_rank = 3;  // four with offload, whose copies have a row
  std::map<std::pair<int, int>, std::string> rows;
  std::vector<Span> spans;
};

Moment moment_of(const std::string& path) {
  Moment m;
  std::vector<Span> steps;
  each_event(path, [&](const Json& event) {
    m.ranks = std::max(m.ranks, event.at("pid").get<int>() + 1);
    if (event.at("name") == "thread_name") {
      const std::string row = event.at("args").at("name");
      m.rows[{event.at("pid"), event.at("tid")}] = row;
      if (row.starts_with("copy")) m.rows_of_rank = 4;
    }
    if (event.at("ph") == "X" && is_step(event.at("name"))) steps.push_back(span_of(event));
  });
  std::vector<Span> of_first;
  for (const Span& s : steps)
    if (s.process == 0) of_first.push_back(s);
  check(!of_first.empty(), path, ": holds no step to draw");
  if (of_first.size() > 1) of_first.erase(of_first.begin());
  const auto middle = of_first.begin() + static_cast<std::ptrdiff_t>(of_first.size() / 2);
  std::nth_element(of_first.begin(), middle, of_first.end(),
                   [](const Span& a, const Span& b) { return a.end - a.begin < b.end - b.begin; });
  m.step = middle->name, m.begin = middle->begin, m.end = middle->end;
  for (const Span& s : steps)
    if (s.name == m.step) m.begin = std::min(m.begin, s.begin), m.end = std::max(m.end, s.end);
  each_event(path, [&](const Json& event) {
    if (event.at("ph") != "X" || is_step(event.at("name"))) return;
    const Span s = span_of(event);
    if (s.end > m.begin && s.begin < m.end) m.spans.push_back(s);
  });
  return m;
}

constexpr double kLeft = 118, kWidth = 960, kRight = 12, kTop = 66, kRow = 20, kPitch = 24, kRankGap = 12;

constexpr char kStyle[] = R"(<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .quiet { fill: #57606a } .line { stroke: #d0d7de } .lane { fill: #f3f5f7 } .page { fill: #ffffff }
  .on { fill: #ffffff; font-size: 11px; text-anchor: middle }
  .forward { fill: #2f7fd6 } .backward { fill: #d9772b } .update { fill: #8a63d2 }
  .gather { fill: #2f9e63 } .exchange { fill: #cf3f5c } .sum { fill: #e79aa8 } .copy { fill: #0f8b8d }
  .wait { fill: #ffffff; stroke: #8c959f; stroke-dasharray: 2 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .line { stroke: #3d444d } .lane { fill: #1b222b }
    .page { fill: #0d1117 } .on { fill: #ffffff } .sum { fill: #8f4a57 } .wait { fill: #0d1117 }
  }
</style>
)";

class Picture {
 public:
  explicit Picture(const Moment& m) : m_(m) {
    out_ << std::fixed << std::setprecision(1);
    const double height = row_top(m.ranks - 1, m.rows_of_rank - 1) + kPitch + 30;
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kWidth << ' ' << height
         << "\" width=\"" << kWidth << "\" height=\"" << height << "\">\n"
         << kStyle << "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
    text(kRight, 20, "",
         str(m.step, ", ", std::round((m.end - m.begin) * 1e-2) / 10, " ms, on ", m.ranks,
             m.ranks == 1 ? " rank" : " ranks"));
    legend();
    ticks(height - 30);
    for (int rank = 0; rank < m.ranks; ++rank) lanes(rank);
    // Waits are drawn on top of the spans that contain them.
    for (const bool waits : {false, true})
      for (const Span& s : m.spans) draw(s, waits);
    out_ << "</svg>\n";
  }
  std::string svg() const { return out_.str(); }

 private:
  static double row_top(int rank, int row) { return kTop + rank * (3 * kPitch + kRankGap) + row * kPitch; }
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

  void lanes(int rank) {
    for (int row = 0; row < m_.rows_of_rank; ++row) {
      const double top = row_top(rank, row);
      if (row == 0) text(kRight, top + 14, "", str("rank ", rank));
      text(kLeft - 58, top + 14, "quiet", kRows[row]);
      box("lane", kLeft, top, kWidth - kLeft - kRight, kRow, "");
    }
  }

  void draw(const Span& s, bool waits) {
    const auto row = m_.rows.find({s.process, s.row});
    const Kind* kind = row == m_.rows.end() ? nullptr : kind_of(row->second, s.name);
    if (!kind || (std::string(kind->style) == "wait") != waits) return;
    const auto place = std::find(std::begin(kRows), std::end(kRows), std::string(kind->row)) - kRows;
    const double top = row_top(s.process, static_cast<int>(place)), x = x_of(s.begin);
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

void write_trace_picture(const std::string& trace_path, const std::string& picture_path) {
  const Moment moment = moment_of(trace_path);
  write_whole_file(picture_path, Picture(moment).svg());
}

}  // namespace flatshard
