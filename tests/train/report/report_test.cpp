#include "train/report/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

#include "tests/test.h"
#include "train/report/metrics.h"

using namespace flatshard;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const std::string kFolder = "report_test_run";
const std::string kPage = kFolder + "/report.html";

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void make_folder(const std::vector<StepMetrics>& steps, const std::string& config = "[run]\n") {
  fs::remove_all(kFolder);
  fs::create_directory(kFolder);
  std::ofstream(kFolder + "/config.toml", std::ios::binary) << config;
  MetricsFile file(kFolder + "/metrics.jsonl");
  for (const StepMetrics& m : steps) file.write(m);
}

std::string page_of(const std::vector<StepMetrics>& steps, const std::string& config = "[run]\n") {
  make_folder(steps, config);
  write_report(kFolder);
  return text_of(kPage);
}

// The text between two marks; the page must contain the first exactly once.
std::string between(const std::string& page, const std::string& begin, const std::string& end) {
  const size_t from = page.find(begin) + begin.size();
  REQUIRE(page.find(begin) != page.npos);
  REQUIRE(page.find(begin, from) == page.npos);
  return page.substr(from, page.find(end, from) - from);
}

json chart(const std::string& page, const std::string& title) {
  const json data = json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
  for (const json& c : data["charts"])
    if (c["title"] == title) return c;
  return nullptr;
}

// "3.1449; of the last step" of the row with this name.
std::string row(const std::string& page, const std::string& name) {
  const std::string html = between(page, "<th scope=\"row\">" + name + "</th><td>", "</td></tr>");
  const std::string middle = "</td><td class=\"note\">";
  REQUIRE(html.find(middle) != html.npos);
  return html.substr(0, html.find(middle)) + "; " + html.substr(html.find(middle) + middle.size());
}

std::vector<StepMetrics> some_steps(int64_t count) {
  std::vector<StepMetrics> steps;
  for (int64_t i = 1; i <= count; ++i)
    steps.push_back({.step = i,
                     .data_step = i,
                     .loss = 3 + 1.0 / static_cast<double>(i),
                     .grad_norm = 1,
                     .lr = 1e-3,
                     .tokens = 1000 * i,
                     .tokens_per_second = 4000 + static_cast<double>(i % 7),
                     .step_seconds = 0.25,
                     .mfu = 0.5,
                     .mfu_causal = 0.25,
                     .memory_bytes = 3 << 20});
  return steps;
}

Curve some_curve(size_t count) {
  Curve curve;
  for (size_t i = 0; i < count; ++i)
    curve.push_back({static_cast<int64_t>(3 * i), std::sin(static_cast<double>(i * i % 1009))});
  return curve;
}

bool same(const CurvePoint& a, const CurvePoint& b) { return a.step == b.step && a.value == b.value; }

}  // namespace

TEST_CASE("a curve is thinned to its bound and keeps its first and last point and its extremes") {
  for (const size_t count : {5, 12, 100, 1001, 20'000})
    for (const size_t most : {4, 5, 10, 333}) {
      Curve curve = some_curve(count);
      curve[count / 2].value = 1e9, curve[count / 3].value = -1e9;
      const Curve thin = thinned(curve, most);
      CAPTURE(count);
      CAPTURE(most);
      CHECK(thin.size() <= most);
      CHECK(thin.size() >= std::min(count, most / 2));
      CHECK(same(thin.front(), curve.front()));
      CHECK(same(thin.back(), curve.back()));
      for (const double extreme : {1e9, -1e9})
        CHECK(std::any_of(thin.begin(), thin.end(), [&](const CurvePoint& p) { return p.value == extreme; }));
    }
}

TEST_CASE("the points of a thinned curve are points of the curve, in order") {
  const Curve curve = some_curve(5000), thin = thinned(curve, 100);
  auto at = curve.begin();
  for (const CurvePoint& p : thin) {
    at = std::find_if(at, curve.end(), [&](const CurvePoint& q) { return same(p, q); });
    REQUIRE(at != curve.end());
    ++at;
  }
}

TEST_CASE("a curve within its bound is unchanged, and a constant one needs few points") {
  const Curve curve = some_curve(50);
  CHECK(thinned(curve, 50).size() == 50);
  CHECK(thinned({}, 4).empty());
  CHECK(thinned(Curve(1000, {1, 7.0}), 100).size() == 2 + 49);
  CHECK(test::error_of([&] { thinned(curve, 3); }) == "a curve thinned to 3 points, must be at least 4");
}

TEST_CASE("the page summarizes the run") {
  std::vector<StepMetrics> steps = some_steps(1400);
  steps[199].eval_loss = 3.5, steps[399].eval_loss = 3.25, steps[599].eval_loss = 3.75;
  steps[100].memory_bytes = 5 << 20;
  const std::string page = page_of(steps);
  CHECK(between(page, "<h1>", "</h1>") == kFolder);
  CHECK(row(page, "Steps") == "1,400; none skipped");
  CHECK(row(page, "Final loss") == "3.0007; of the last step");
  CHECK(row(page, "Best eval loss") == "3.2500; at step 400, of 3 evaluations");
  CHECK(row(page, "Tokens") == "1.40M; 1,400,000");
  CHECK(row(page, "Median tokens/s") == "4.00k; all ranks");
  CHECK(row(page, "Median MFU") == "50.0%; 25.0% with causal attention");
  CHECK(row(page, "Wall time") == "5:50; steps only, without evaluation");
  CHECK(row(page, "Peak memory") == "5.00 MiB; 5,242,880 bytes");
}

TEST_CASE("the page has every curve") {
  std::vector<StepMetrics> steps = some_steps(20);
  steps[9].eval_loss = 3.5;
  const std::string page = page_of(steps);
  const json loss = chart(page, "Loss");
  REQUIRE(loss["series"].size() == 2);
  CHECK(loss["series"][0]["points"].size() == 20);
  CHECK(loss["series"][0]["points"][3] == json{4, 3.25});
  CHECK(loss["series"][1]["points"] == json{{10, 3.5}});
  CHECK(loss["series"][1]["dots"] == true);
  CHECK(loss["marks"].empty());
  for (const char* title : {"Learning rate", "Gradient norm", "Throughput"})
    CHECK(chart(page, title)["series"][0]["points"].size() == 20);
  CHECK(chart(page, "Memory")["unit"] == "MiB");
  CHECK(chart(page, "Memory")["series"][0]["points"][0] == json{1, 3.0});
  CHECK(chart(page, "Loss scale").is_null());
}

TEST_CASE("one step without an evaluation makes a page") {
  const std::string page = page_of(some_steps(1));
  CHECK(row(page, "Best eval loss") == "\u2013; no evaluation");
  CHECK(row(page, "Wall time") == "250 ms; steps only, without evaluation");
  CHECK(chart(page, "Loss")["series"].size() == 1);
  CHECK(chart(page, "Loss")["series"][0]["points"] == json{{1, 4.0}});
}

TEST_CASE("a skipped step and a non-finite loss are marked and in no curve") {
  std::vector<StepMetrics> steps = some_steps(6);
  for (StepMetrics& m : steps) m.loss_scale = 1024;
  steps[2].skipped = true, steps[2].grad_norm = HUGE_VAL;
  for (size_t i = 2; i < steps.size(); ++i) --steps[i].step;
  steps[4].loss = std::numeric_limits<double>::quiet_NaN();
  const std::string page = page_of(steps);
  CHECK(row(page, "Steps") == "5; 1 skipped");
  const json loss = chart(page, "Loss");
  CHECK(loss["marks"] == json{2, 4});
  CHECK(loss["series"][0]["points"].size() == 4);
  CHECK(chart(page, "Gradient norm")["series"][0]["points"].size() == 5);
  CHECK(chart(page, "Loss scale")["series"][0]["points"].size() == 6);
}

TEST_CASE("a run whose every step was skipped makes a page") {
  std::vector<StepMetrics> steps = some_steps(3);
  for (StepMetrics& m : steps) m.skipped = true, m.step = 0;
  const std::string page = page_of(steps);
  CHECK(row(page, "Steps") == "0; 3 skipped");
  CHECK(row(page, "Final loss") == "\u2013; no update was made");
  CHECK(chart(page, "Loss")["series"][0]["points"].empty());
}

TEST_CASE("steps missing from another folder's history are counted and reported") {
  std::vector<StepMetrics> steps = some_steps(10);
  CHECK(page_of(steps).find("another folder") == std::string::npos);
  steps.erase(steps.begin() + 1, steps.begin() + 4);
  const std::string page = page_of(steps);
  CHECK(page.find("resumed from a checkpoint of another folder, whose history omits 3 steps") !=
        std::string::npos);
  CHECK(row(page, "Steps") == "10; none skipped");
  CHECK(row(page, "Wall time") == "1.75 s; listed steps only");
}

TEST_CASE("the page of 100,000 steps is below 2 MB and states that its curves are thinned") {
  std::vector<StepMetrics> steps = some_steps(100'000);
  for (StepMetrics& m : steps) {
    const double noise = std::sin(static_cast<double>(m.step * m.step % 100'003));
    m.loss += noise, m.grad_norm += noise, m.lr += 1e-5 * noise, m.tokens_per_second += 100 * noise;
    m.memory_bytes += m.step * 7919 % 104'729, m.eval_loss = m.loss, m.loss_scale = 2 + noise;
  }
  steps[70'000].loss = 500;
  const std::string page = page_of(steps);
  CHECK(page.size() < 2'000'000);
  CHECK(page.find("of every stretch of steps the lowest and the highest value") != page.npos);
  CHECK(page_of(some_steps(2000)).find("every stretch") == page.npos);
  const json loss = chart(page, "Loss");
  const json& points = loss["series"][0]["points"];
  CHECK(points.front()[0] == 1);
  CHECK(points.back()[0] == 100'000);
  CHECK(std::find(points.begin(), points.end(), json{70'001, 500.0}) != points.end());
}

TEST_CASE("whatever the config holds is shown as text") {
  const std::string page =
      page_of(some_steps(2), "dir = \"</pre></script><script>alert(1)</script> & &lt; <!--\"\n");
  CHECK(between(page, "<pre>", "</pre>") ==
        "dir = &quot;&lt;/pre&gt;&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; &amp;lt; "
        "&lt;!--&quot;\n");
  CHECK(page.find("alert(1)</script>") == page.npos);
}

TEST_CASE("a folder's name is shown as text, however the folder is spelt") {
  const std::string odd = "report_test_<b>&";
  make_folder(some_steps(2));
  fs::remove_all(odd);
  fs::rename(kFolder, odd);
  for (const char* spelling : {"", "/", "/.", "/../report_test_<b>&"}) {
    write_report(odd + spelling);
    CHECK(between(text_of(odd + "/report.html"), "<h1>", "</h1>") == "report_test_&lt;b&gt;&amp;");
  }
  fs::remove_all(odd);
}

TEST_CASE("the page loads nothing besides itself") {
  const std::string page = page_of(some_steps(20));
  CHECK(page.find("default-src 'none'") != page.npos);
  for (const char* reference : {"src=", "href=", "url(", "@import", "fetch(", "https:"})
    CHECK(page.find(reference) == page.npos);
  // The one address is the name of the format SVG.
  CHECK(between(page, "http:", "\"") == "//www.w3.org/2000/svg");
}

TEST_CASE("a folder that cannot be reported on is an error, and an earlier report stays") {
  const std::string earlier = page_of(some_steps(2));
  const auto error = [] { return test::error_of([] { write_report(kFolder); }); };
  std::ofstream(kFolder + "/metrics.jsonl", std::ios::app) << "{\"step\":3,\"lo";
  CHECK(error().starts_with(kFolder + "/metrics.jsonl:3: not JSON at byte "));
  fs::remove(kFolder + "/config.toml");
  std::ofstream(kFolder + "/metrics.jsonl", std::ios::trunc).flush();
  CHECK(error() == kFolder + "/metrics.jsonl: contains no steps to report on");
  MetricsFile(kFolder + "/metrics.jsonl").write({.step = 1});
  CHECK(error() == kFolder + "/config.toml: cannot open: No such file or directory");
  CHECK(text_of(kPage) == earlier);
  CHECK_FALSE(fs::exists(kPage + ".tmp"));
}
