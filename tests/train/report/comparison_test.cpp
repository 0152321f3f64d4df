#include "train/report/comparison.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "runtime/check.h"
#include "tests/test.h"

using namespace flatshard;
using Texts = std::vector<std::string>;

namespace {

const std::string kMissing = ">\u2013";

StartRecord start_on(const std::vector<StartHost>& hosts) {
  return {.time = 1.7e9, .version = "0.2, revision 5a6d644", .command = "train a.toml", .hosts = hosts};
}

ReportedRun run_of(const std::string& name, const std::vector<StepMetrics>& steps,
                   const std::vector<StartRecord>& starts = {}, const std::string& config = "") {
  return {.name = name, .config = config, .curves = RunCurves(steps), .starts = starts};
}

Texts all_between(const std::string& text, const std::string& begin, const std::string& end) {
  Texts found;
  for (size_t at = text.find(begin); at != text.npos; at = text.find(begin, at)) {
    at += begin.size();
    found.push_back(text.substr(at, text.find(end, at) - at));
  }
  return found;
}

// A column of the list from top to bottom, each cell with its attributes: " data-value=\"4\">4".
Texts column(const std::vector<ReportedRun>& runs, const std::string& name) {
  const std::string list = run_list_html(runs);
  const Texts names = all_between(list, "<th scope=\"col\">", "</th>");
  const auto at = std::find(names.begin() + 1, names.end(), name) - names.begin();  // after "Run"
  REQUIRE(at < std::ssize(names));
  Texts cells;
  for (const std::string& row : all_between(list, "<tr data-config=", "</tr>"))
    cells.push_back(all_between(row, "<td", "</td>").at(static_cast<size_t>(at) - 1));
  return cells;
}

}  // namespace

TEST_CASE("the list has a row for each run, with the number behind each result") {
  StepMetrics first{.step = 1, .data_step = 1, .loss = 3.25, .tokens = 1500, .tokens_per_second = 2000};
  first.step_seconds = 0.25, first.mfu = 0.5, first.memory_bytes = 3 << 20;
  first.eval_loss = 3.5, first.exposed_comm_seconds = 0.05, first.time = 1.7e9 + 0.125;
  StepMetrics skipped = first;
  skipped.data_step = 2, skipped.skipped = true, skipped.eval_loss = {};
  const std::vector<ReportedRun> runs{run_of("a", {first, skipped}), run_of("b", {})};
  CHECK(all_between(run_list_html(runs), "<th scope=\"row\" class=\"text\">", "</th>") ==
        Texts{"<span class=\"key\" data-run=\"0\">a</span>", "<span class=\"key\" data-run=\"1\">b</span>"});
  CHECK(column(runs, "Steps") ==
        Texts{" data-value=\"1\">1 <span class=\"note\">1 skipped</span>", " data-value=\"0\">0"});
  CHECK(column(runs, "Loss") == Texts{" data-value=\"3.25\">3.2500", kMissing});
  CHECK(column(runs, "Best eval loss") ==
        Texts{" data-value=\"3.5\">3.5000 <span class=\"note\">at step 1</span>", kMissing});
  CHECK(column(runs, "Median tokens/s") == Texts{" data-value=\"2000\">2.00k", kMissing});
  CHECK(column(runs, "Median step") == Texts{" data-value=\"0.25\">250 ms", kMissing});
  CHECK(column(runs, "Median MFU") == Texts{" data-value=\"0.5\">50.0%", kMissing});
  CHECK(column(runs, "Communication") == Texts{" data-value=\"0.2\">20.0%", kMissing});
  CHECK(column(runs, "Peak memory").front() == " data-value=\"3145728\">3.00 MiB");
  CHECK(column(runs, "Tokens").front() == " data-value=\"1500\">1.50k");
  CHECK(column(runs, "Time").front() ==
        " data-value=\"0.5\">500 ms <span class=\"note\">steps only, without evaluation</span>");
  CHECK(column(runs, "Last step, UTC") ==
        Texts{" data-value=\"1700000000.125\">2023-11-14 22:13:20", kMissing});
}

TEST_CASE("the list sorts a loss that is no number as missing") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(column({run_of("a", {{.step = 1, .data_step = 1, .loss = nan}})}, "Loss") == Texts{">nan"});
}

TEST_CASE("the list says where and with what the last start of each run ran") {
  StartRecord first = start_on({{"n<1>", 2, "<cpu>, 4 threads"}}), last = first;
  last.ranks = 4, last.hosts = {{"n1", 3, "2 x GPU A"}, {"n2", 1, "GPU B"}};
  last.command = "train a.toml --launch 'mpirun -np 4'";
  first.ranks = 2;
  const std::vector<ReportedRun> runs{run_of("a", {}, {first, last}), run_of("b", {}, {first}),
                                      run_of("old", {})};
  CHECK(column(runs, "Ranks") == Texts{" data-value=\"4\">4", " data-value=\"2\">2", kMissing});
  CHECK(column(runs, "Hosts") ==
        Texts{" class=\"text\" data-value=\"2\">2 <span class=\"note\">n1, n2</span>",
              " class=\"text\" data-value=\"1\">1 <span class=\"note\">n&lt;1&gt;</span>", kMissing});
  CHECK(column(runs, "Devices") ==
        Texts{" class=\"text\">2 x GPU A; GPU B", " class=\"text\">&lt;cpu&gt;, 4 threads", kMissing});
  CHECK(column(runs, "Version") ==
        Texts{" class=\"text\">0.2, revision 5a6d644 <span class=\"note\">2 starts</span>",
              " class=\"text\">0.2, revision 5a6d644", kMissing});
  CHECK(column(runs, "Command") == Texts{" class=\"text\"><code>train a.toml --launch 'mpirun -np 4'</code>",
                                         " class=\"text\"><code>train a.toml</code>", kMissing});
}

TEST_CASE("of many equal hosts the list names three, and their devices once") {
  std::vector<StartHost> hosts;
  for (int i = 0; i < 64; ++i) hosts.push_back({str("n", i), 4, "4 x H200"});
  const std::vector<ReportedRun> runs{run_of("a", {}, {start_on(hosts)})};
  CHECK(column(runs, "Hosts") ==
        Texts{" class=\"text\" data-value=\"64\">64 <span class=\"note\">n0, n1, n2, 61 more</span>"});
  CHECK(column(runs, "Devices") == Texts{" class=\"text\">each 4 x H200"});
}

TEST_CASE("a row of the list has the settings in which its run differs, as they are typed") {
  const std::string same = "[run]\nseed = 1\n\n", a = same + "[schedule]\nkind = \"<cosine>\"\n",
                    b = same + "[schedule]\nkind = \"linear\"\n\n[optimizer]\nbetas = [0.9, 0.99]\n";
  CHECK(all_between(run_list_html({run_of("a", {}, {}, a), run_of("b", {}, {}, b)}), "<tr data-config=\"",
                    "\"") ==
        Texts{"schedule.kind=&lt;cosine&gt;", "schedule.kind=linear\noptimizer.betas=[0.9, 0.99]"});
}
