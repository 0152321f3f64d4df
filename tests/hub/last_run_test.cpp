#include "hub/last_run.h"

#include <fstream>
#include <unistd.h>

#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// A new folder with runs in it.
std::string folder_of_runs(const std::string& name) {
  fs::remove_all(name);
  for (const char* run : {"a", "b"}) fs::create_directories(name + "/runs/" + run);
  return name + "/runs/";
}

}  // namespace

TEST_CASE("the last run is found from any folder below, and after the runs are moved") {
  const std::string runs = folder_of_runs("last");
  const auto found = [&] { return fs::canonical(last_run("last")).filename().string(); };
  note_last_run(runs + "a");
  CHECK(test::read_file(runs + "latest") == "runs/a\n");
  CHECK(found() == "a");
  note_last_run(fs::absolute(runs + "b").string());
  CHECK(found() == "b");
  note_last_run(runs + "b/../a");
  CHECK(found() == "a");
  fs::remove_all("moved");
  fs::rename("last", "moved");
  CHECK(fs::equivalent(last_run("moved"), "moved/runs/a"));
  fs::rename("moved/runs", "moved/others");
  fs::create_directory_symlink("others", "moved/runs");
  CHECK(fs::equivalent(last_run("moved"), "moved/others/a"));
}

TEST_CASE("the record of the last run replaces no other file") {
  const std::string runs = folder_of_runs("last_foreign"), note = runs + "latest";
  for (const std::string text : {"", "v1.2\n", "runs/a", "runs/a\nruns/b\n", "other/a\n"}) {
    CAPTURE(text);
    write_text(note, text);
    note_last_run(runs + "a");
    CHECK(test::read_file(note) == text);
  }
  fs::remove(note);
  fs::create_symlink("a", note);
  note_last_run(runs + "b");
  CHECK(fs::read_symlink(note) == "a");
  fs::remove(note);
  fs::create_directory(note);  // and the folder of a run itself
  note_last_run(runs + "b");
  note_last_run(note);
  CHECK(fs::is_empty(note));
  CHECK(std::distance(fs::directory_iterator(runs), {}) == 3);
  note_last_run(runs + "a\nb");
  note_last_run("no/such/folder/of/a/run");
}

TEST_CASE("a run succeeds although its parent cannot be written") {
  if (geteuid() == 0) return test::skip("root may write everywhere");
  const std::string runs = folder_of_runs("last_read_only");
  fs::permissions(runs, fs::perms::owner_read | fs::perms::owner_exec);
  note_last_run(runs + "a");
  CHECK(!fs::exists(runs + "latest"));
  fs::permissions(runs, fs::perms::owner_all);
}

TEST_CASE("a successful run becomes the last one, whatever its path looks like") {
  const test::Workshop workshop("last_of_program");
  const std::string quick = " --data.eval= --train.eval_every=0 --train.steps=1 ";
  CHECK(workshop.train(1, "--run.dir=runs/bad --optimizer.lr=1e30 --train.steps=9").exit_code == 1);
  CHECK(!fs::exists(workshop.file("runs/latest")));
  const test::Finished run = workshop.train(1, "--run.dir=./runs//good/ --checkpoint.save_every=1" + quick);
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  CHECK(test::read_file(workshop.file("runs/latest")) == "runs/good\n");
  CHECK(test::read_file(workshop.file("runs/good/latest")) == "step-1\n");
  const test::Finished named = workshop.train(1, "--run.dir=others/latest" + quick);
  REQUIRE_MESSAGE(named.exit_code == 0, named.output);
  CHECK(named.output.find(
            "others/latest: was not written by a run; this run is not recorded as the last one") !=
        std::string::npos);
}
