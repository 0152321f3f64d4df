#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "tools/programs.h"
#include "train/report/report.h"

namespace flatshard {
namespace {

constexpr char kAbout[] =
    "Writes the report page of a run, or one page that compares several runs: curves over steps, tokens or\n"
    "time, the command, version and machines of each run, and the config keys that differ. The page is a\n"
    "single file that needs no network. A run may still be training, or it may have crashed.";

// Runs with the same name are distinguished by their paths.
std::vector<ReportedRun> read_runs(const std::vector<std::string>& folders) {
  std::vector<ReportedRun> runs;
  for (const std::string& folder : folders) runs.push_back(read_reported_run(folder));
  for (size_t i = 0; i < runs.size(); ++i)
    if (std::count_if(folders.begin(), folders.end(), [&](const std::string& other) {
          return name_of_folder(other) == name_of_folder(folders[i]);
        }) > 1)
      runs[i].name = folders[i];
  return runs;
}

void write_page(const std::vector<std::string>& folders, const std::string& out_path, std::ostream& out) {
  check(folders.size() <= kMostComparedRuns, counted(std::ssize(folders), "run"), " given, at most ",
        kMostComparedRuns, " can be compared");
  const std::string page = report_page(read_runs(folders));
  std::string path = out_path;
  if (path.empty() && folders.size() == 1) {
    path = (std::filesystem::path(folders.front()) / "report.html").string();
    write_whole_file(path, page);  // the run's own report
  } else {
    if (path.empty()) path = "comparison.html";
    write_report(path, page);
  }
  out << path << ": " << counted(std::ssize(folders), "run") << '\n';
}

}  // namespace

int run_report(const Arguments& arguments, const Streams& streams) {
  std::vector<std::string> folders;
  std::string path;
  const Command program{
      .name = "report",
      .about = kAbout,
      .options = {{"RUN", &folders, "folders of runs (run.dir)", {.type = "", .required = true}},
                  {"--out",
                   &path,
                   "file to write; default: report.html in the folder of a single run, comparison.html for "
                   "several",
                   {.type = "FILE"}}},
      .run = [&] {
        write_page(folders, path, streams.out);
        return 0;
      }};
  return run_program(program, arguments, streams);
}

}  // namespace flatshard
