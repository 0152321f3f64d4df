#include "train/report/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "runtime/check.h"
#include "runtime/json.h"
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
  return report_page({read_reported_run(kFolder)});
}

ReportedRun run_of(const std::string& name, const std::vector<StepMetrics>& steps,
                   const std::string& config = "[run]\n") {
  return {.name = name, .config = config, .curves = RunCurves(steps)};
}

// The text between two marks; the page must contain the first exactly once.
std::string between(const std::string& page, const std::string& begin, const std::string& end) {
  const size_t from = page.find(begin) + begin.size();
  REQUIRE(page.find(begin) != page.npos);
  REQUIRE(page.find(begin, from) == page.npos);
  return page.substr(from, page.find(end, from) - from);
}

json data_of(const std::string& page) {
  return json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
}

json chart(const std::string& page, const std::string& title) {
  const json data = data_of(page);
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

}  // namespace

TEST_CASE("the page summarizes the run") {
  std::vector<StepMetrics> steps = some_steps(1400);
  steps[199].eval_loss = 3.5, steps[399].eval_loss = 3.25, steps[599].eval_loss = 3.75;
  steps[100].memory_bytes = 5 << 20;
  const std::string page = page_of(steps);
  CHECK(between(page, "<h1>", "</h1>") == kFolder);
  CHECK(row(page, "Steps") == "1,400; none skipped");
  CHECK(row(page, "Loss") == "3.0007; of the last step");
  CHECK(row(page, "Best eval loss") == "3.2500; at step 400, of 3 evaluations");
  CHECK(row(page, "Tokens") == "1.40M; 1,400,000");
  CHECK(row(page, "Median tokens/s") == "4.00k; all ranks");
  CHECK(row(page, "Median MFU") == "50.0%; 25.0% with causal attention");
  CHECK(row(page, "Median step") == "250 ms; no prediction");
  CHECK(row(page, "Communication") == "\u2013; not measured on one rank or on GPUs");
  CHECK(row(page, "Time") == "5:50; steps only, without evaluation");
  CHECK(row(page, "Peak memory") == "5.00 MiB; 5,242,880 bytes");
}

TEST_CASE("the page says that the utilization is an upper bound if it is one in any step") {
  std::vector<StepMetrics> steps = some_steps(20);
  steps[7].mfu_is_bound = true;
  CHECK(row(page_of(steps), "Median MFU") ==
        "at most 50.0%; at most 25.0% with causal attention; the peak was measured on a busy machine");
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

TEST_CASE("every chart has a quantity for its axis, and a unit where the quantity has one") {
  std::vector<StepMetrics> steps = some_steps(3);
  for (StepMetrics& m : steps) {
    m.exposed_comm_seconds = 0.05, m.loss_scale = 2, m.file_losses = {{"a", 1}};
    for (const char* name : {"accuracy", "margin", "chosen_logprob", "kl", "clip_share"})
      m.answers.push_back({name, 1});
  }
  const json data = data_of(page_of(steps));
  std::string axes;
  for (const json& c : data["charts"])
    axes += str(c["quantity"].get<std::string>(), '|', c["unit"].get<std::string>(), '\n');
  CHECK(axes ==
        "loss|\nloss|nats/token\nshare of pairs|\nreward|nats\nlog-probability|nats\n"
        "divergence|nats/token\nshare of tokens|\nlearning rate|\ngradient norm|\nthroughput|tokens/s\n"
        "exposed|% of step time\nmemory|MiB\nloss scale|\n");
  CHECK(chart(page_of(some_steps(3)), "Loss")["unit"] == "nats/token");
}

TEST_CASE("the share of a step that waits for communication is a curve, with its median") {
  std::vector<StepMetrics> steps = some_steps(9);
  for (StepMetrics& m : steps) m.exposed_comm_seconds = 0.05;
  steps[2].exposed_comm_seconds = 0.125;
  const std::string page = page_of(steps);
  CHECK(row(page, "Communication") == "20.0%; median share of a step that waits for it");
  CHECK(chart(page, "Communication")["series"][0]["points"][2] == json{3, 50.0});
  CHECK(chart(page_of(some_steps(2)), "Communication").is_null());
}

TEST_CASE("rewards have names for people, and files keep theirs") {
  std::vector<StepMetrics> steps = some_steps(2);
  for (StepMetrics& m : steps) m.answers = {{"chosen_reward", 1}}, m.file_losses = {{"a_b", 1}};
  const std::string page = page_of(steps);
  CHECK(chart(page, "Rewards")["series"][0]["name"] == "chosen reward");
  CHECK(chart(page, "Loss by file")["series"][0]["name"] == "a_b");
}

TEST_CASE("one step without an evaluation makes a page") {
  const std::string page = page_of(some_steps(1));
  CHECK(row(page, "Best eval loss") == "\u2013; no evaluation");
  CHECK(row(page, "Time") == "250 ms; steps only, without evaluation");
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
  CHECK(loss["marks"] == json{{0, 2}, {0, 4}});
  CHECK(loss["series"][0]["points"].size() == 4);
  CHECK(chart(page, "Gradient norm")["series"][0]["points"].size() == 5);
  CHECK(chart(page, "Loss scale")["series"][0]["points"].size() == 5);  // one for the two lines of step 2
}

TEST_CASE("a run whose every step was skipped makes a page") {
  std::vector<StepMetrics> steps = some_steps(3);
  for (StepMetrics& m : steps) m.skipped = true, m.step = 0;
  const std::string page = page_of(steps);
  CHECK(row(page, "Steps") == "0; 3 skipped");
  CHECK(row(page, "Loss") == "\u2013; no update was made");
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
  CHECK(row(page, "Time") == "1.75 s; listed steps only");
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
  CHECK(chart(page_of(some_steps(2000)), "Loss")["series"][0].count("means") == 0);
  CHECK(loss["series"][0]["means"].size() > 400);
  CHECK(points.front()[0] == 1);
  CHECK(points.back()[0] == 100'000);
  CHECK(std::find(points.begin(), points.end(), json{70'001, 500.0}) != points.end());
}

TEST_CASE("the page shows what the last start of the run predicted for a step, and its timeline") {
  std::vector<StepMetrics> steps = some_steps(6);
  steps[0].predicted_seconds = 0.5;
  steps[3].predicted_seconds = 0.24;
  make_folder(steps);
  CHECK(report_page({read_reported_run(kFolder)}).find("Timeline of a step") == std::string::npos);
  std::ofstream(kFolder + "/overlap.svg") << "<svg>the timeline</svg>";
  const std::string page = report_page({read_reported_run(kFolder)});
  CHECK(row(page, "Median step") == "250 ms; predicted 240 ms");
  CHECK(page.find("<svg>the timeline</svg>") != std::string::npos);
}

TEST_CASE("whatever the config holds is shown as text") {
  const std::string page =
      page_of(some_steps(2), "dir = \"</pre></script><script>alert(1)</script> & &lt; <!--\"\n");
  CHECK(between(page, "<pre>", "</pre>") ==
        "dir = &quot;&lt;/pre&gt;&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; &amp;lt; "
        "&lt;!--&quot;\n");
  CHECK(page.find("alert(1)</script>") == page.npos);
}

TEST_CASE("a run's name is shown as text, however its folder is spelt") {
  const std::string odd = "report_test_<b>&";
  make_folder(some_steps(2));
  fs::remove_all(odd);
  fs::rename(kFolder, odd);
  for (const char* spelling : {"", "/", "/.", "/../report_test_<b>&"}) {
    const std::string page = report_page({read_reported_run(odd + spelling)});
    CHECK(between(page, "<h1>", "</h1>") == "report_test_&lt;b&gt;&amp;");
    CHECK(data_of(page)["runs"][0]["name"] == odd);
  }
  fs::remove_all(odd);
}

TEST_CASE("the page loads nothing besides itself") {
  const std::string page = page_of(some_steps(20));
  CHECK(page.find("default-src 'none'") != page.npos);
  for (const char* reference : {"src=", "href=", "@import", "fetch(", "https:"})
    CHECK(page.find(reference) == page.npos);
  for (size_t at = page.find("url("); at != page.npos; at = page.find("url(", at + 1))
    CHECK(page.substr(at, 5) == "url(#");  // an element of the page
  // The one address is the name of the format SVG.
  CHECK(between(page, "http:", "\"") == "//www.w3.org/2000/svg");
}

TEST_CASE("the page has tokens and time at every step, for the other axes") {
  std::vector<StepMetrics> steps = some_steps(3);
  CHECK(data_of(page_of(steps))["runs"][0]["seconds"] == json{{1, 0.25}, {2, 0.5}, {3, 0.75}});
  for (size_t i = 0; i < steps.size(); ++i) steps[i].elapsed_seconds = 2.0 * static_cast<double>(i + 1);
  const std::string page = page_of(steps);
  CHECK(data_of(page)["runs"][0]["tokens"] == json{{1, 1000}, {2, 2000}, {3, 3000}});
  CHECK(data_of(page)["runs"][0]["seconds"] == json{{1, 2}, {2, 4}, {3, 6}});
  CHECK(row(page, "Time") == "6.00 s; with evaluations and checkpoints");
}

TEST_CASE("a page of several runs has their curves side by side") {
  std::vector<StepMetrics> evaluated = some_steps(4);
  evaluated[3].eval_loss = 3.5;
  const std::string page = report_page({run_of("a", some_steps(8)), run_of("b<i>", evaluated)});
  CHECK(between(page, "<h1>", "</h1>") == "2 runs");
  CHECK(page.find("<table class=\"list\">") < page.find("id=\"charts\""));
  CHECK(page.find(">b&lt;i&gt;</span></th>") != page.npos);
  const json loss = chart(page, "Loss");
  REQUIRE(loss["series"].size() == 3);
  CHECK(loss["series"][0]["run"] == 0);
  CHECK(loss["series"][0]["points"].size() == 8);
  CHECK(loss["series"][1]["run"] == 1);
  CHECK(loss["series"][2]["points"] == json{{4, 3.5}});
  CHECK(test::error_of([] { report_page(std::vector<ReportedRun>(17, run_of("a", some_steps(1)))); }) ==
        "a page of 17 runs, must be from 1 to 16");
}

TEST_CASE("a page of several runs lists the config keys that differ, and no others") {
  const std::string a = "# mark\n[run]\ndir = \"a\"\n\n[optimizer]\nlr = 0.1\nbetas = [0.9, 0.99]\n",
                    b = "# mark\n[run]\ndir = \"b\"\n\n[optimizer]\nlr = 0.2\nbetas = [0.9, 0.99]\n"
                        "\n[model.rope_scaling]\nkind = \"<none> = x\"\n";
  const auto differences = [&](const std::string& other) {
    const std::string page = report_page({run_of("a", some_steps(2), a), run_of("b", some_steps(2), other)});
    return between(page, "<h2>Config differences</h2>", "<details>");
  };
  const std::string found = differences(b);
  CHECK(found.find("<code>optimizer.lr</code></th><td><code>0.1</code></td><td><code>0.2</code></td>") !=
        found.npos);
  CHECK(found.find("<code>model.rope_scaling.kind</code></th><td>\u2013</td>"
                   "<td><code>&quot;&lt;none&gt; = x&quot;</code></td>") != found.npos);
  CHECK(found.find("betas") == found.npos);
  CHECK(found.find("run.dir") == found.npos);
  CHECK(differences(a).find("The configs differ in run.dir only.") != std::string::npos);
}

TEST_CASE("the page says where and with what each start ran") {
  const StartRecord first{.step = 0,
                          .time = 1.7e9,
                          .version = "0.1, revision 5a6d644",
                          .command = "train a.toml --launch 'mpirun -np 2'",
                          .ranks = 2,
                          .hosts = {{"node1", 2, "<b>, 2 x 4 threads"}}};
  StartRecord second = first;
  second.step = 50, second.ranks = 4, second.hosts.push_back({"node2", 2, "cpu, 4 threads"});
  ReportedRun run = run_of("a", some_steps(8)), other = run_of("b", some_steps(8)), old = other;
  run.starts = {first, second}, other.starts = {first};
  const std::string page = report_page({run});
  CHECK(row(page, "Ranks") == "4; node1: &lt;b&gt;, 2 x 4 threads; node2: cpu, 4 threads");
  CHECK(row(page, "Version") == "0.1, revision 5a6d644; of the last of 2 starts");
  CHECK(
      test::missing_from(between(page, "<summary>Starts</summary>", "</details>"),
                         {"after step 0", "2023-11-14 22:13:20 UTC", "<code>train a.toml", "mpirun -np 2",
                          "node1: 2 ranks on &lt;b&gt;", "version 0.1", "after step 50", "node2: 2 ranks on"})
          .empty());
  CHECK(test::missing_from(report_page({run, other, old}), {"Starts of a<", "Starts of b<"}).empty());
  CHECK(row(report_page({old}), "Ranks") == "\u2013; not recorded");
  CHECK(report_page({old}).find("Starts") == std::string::npos);
}

TEST_CASE("a running page reloads itself, an ended one does not") {
  const PageState running{.progress = "step 2 of 9", .written = 1000.4, .refresh_seconds = 11};
  const auto state = [](const PageState& s) {
    return between(report_page({run_of("a", some_steps(2))}, s), "<p id=\"state\" class=", "</p>");
  };
  CHECK(state(running) ==
        "\"running\" data-written=\"1000\" data-refresh=\"11\"><b>running</b> step 2 of 9<span></span>");
  PageState failed = running;
  failed.kind = PageState::Kind::failed, failed.reason = "no <disk>";
  CHECK(state(failed) ==
        "\"failed\" data-written=\"1000\"><b>failed</b> step 2 of 9<span></span>: no &lt;disk&gt;");
  CHECK(report_page({run_of("a", some_steps(2))}).find("id=\"state\"") == std::string::npos);
}

TEST_CASE("a run without a step has a page") {
  const std::string page = page_of({});
  CHECK(page.find("There are no steps yet.") != page.npos);
  CHECK(chart(page, "Loss")["series"].empty());
}

TEST_CASE("of a line repeated after a resume the later one is shown, and those in between are dropped") {
  std::vector<StepMetrics> steps = some_steps(5);
  for (const int64_t number : {3, 4}) {
    steps.push_back(steps[static_cast<size_t>(number) - 1]);
    steps.back().loss = 7;
  }
  make_folder(steps);
  std::ofstream(kFolder + "/metrics.jsonl", std::ios::app) << "{\"step\":5,\"lo";  // being written
  const std::string page = report_page({read_reported_run(kFolder)});
  CHECK(row(page, "Steps") == "4; none skipped");
  CHECK(chart(page, "Loss")["series"][0]["points"] == json{{1, 4.0}, {2, 3.5}, {3, 7.0}, {4, 7.0}});
}

TEST_CASE("a folder that cannot be reported on is an error") {
  make_folder(some_steps(2));
  const auto error = [](const std::string& folder) {
    return test::error_of([&] { read_reported_run(folder); });
  };
  std::ofstream(kFolder + "/metrics.jsonl", std::ios::app) << "{\"step\":3,\"lo\n";
  CHECK(error(kFolder).starts_with(kFolder + "/metrics.jsonl:3: not JSON at byte "));
  fs::remove(kFolder + "/config.toml");
  CHECK(error(kFolder) == kFolder + "/config.toml: cannot open: No such file or directory");
  fs::remove(kFolder + "/metrics.jsonl");
  CHECK(error(kFolder) == kFolder + ": contains no metrics.jsonl, so it is not the folder of a run");
  CHECK(error("nowhere") == "nowhere: is not a folder; give the folder of a run (run.dir)");
}

TEST_CASE("a page replaces a page and no other file") {
  make_folder(some_steps(2));
  const std::string page = report_page({read_reported_run(kFolder)});
  for (int i = 0; i < 2; ++i) write_report(kPage, page);
  CHECK(text_of(kPage) == page);
  const std::string metrics = kFolder + "/metrics.jsonl";
  CHECK(test::error_of([&] { write_report(metrics, page); }) ==
        metrics + ": is not a report page, so it is not replaced; give another name");
}
