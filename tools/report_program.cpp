#include "tools/report_program.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/check.h"
#include "runtime/program_end.h"
#include "runtime/reason.h"
#include "runtime/standard_streams.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/command_line/arguments.h"
#include "train/command_line/standard_options.h"
#include "train/report/report.h"

namespace flatshard {
namespace {

constexpr char kAbout[] =
    "Writes the report page of a run, or one page that compares several: curves over steps, tokens and "
    "time,\n"
    "and the config keys that differ. The page is one file that needs no network. A run may be alive, or it\n"
    "may have crashed.";

// Runs of the same name are told apart by their paths.
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
    write_whole_file(path, page);  // the run's own
  } else {
    if (path.empty()) path = "comparison.html";
    write_report(path, page);
  }
  out << path << ": " << counted(std::ssize(folders), "run") << '\n';
}

}  // namespace

int report_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  CLI::App app(kAbout, "report");
  add_standard_options(app);
  reserve_standard_streams();
  survive_file_limits();
  std::vector<std::string> folders;
  std::string path;
  app.add_option("RUN", folders, "folders of runs (run.dir)")->required()->type_name("");
  app.add_option(
         "--out", path,
         "file to write; default: report.html in the folder of a single run, comparison.html for several")
      ->type_name("FILE");
  try {
    parse_arguments(app, arguments_of(argc, argv));
    write_page(folders, path, out);
    return end_program("report", 0, out, err);
  } catch (const CLI::Success& help) {
    return end_program("report", app.exit(help, out, err), out, err);
  } catch (const std::exception& error) {
    err << "report: " << printable(reason_of(error)) << '\n';
  }
  return 1;
}

}  // namespace flatshard
