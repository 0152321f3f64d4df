#include "train/save/run_folder.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <unistd.h>

#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a run locks its folder from the start, even a new one") {
  fs::remove_all("held");
  World world;
  RunFolder run("held/a/run");
  run.hold(world);
  FolderLock other("held/a/run", "it is held");
  CHECK(test::error_of([&] { other.take(0); }) == "held/a/run: it is held");
}

TEST_CASE("a run that does not start leaves no folder behind, and a waiting run creates its own") {
  fs::remove_all("given_up");
  fs::create_directory("given_up");
  World world;
  std::optional<RunFolder> refused("given_up/a/run");
  refused->hold(world);
  RunFolder waits("given_up/a/run");
  std::thread waiting([&] { waits.hold(world); });
  refused.reset();
  waiting.join();
  waits.begin("");
  CHECK(fs::exists("given_up/a/run/config.toml"));
  fs::create_directory("given_up/kept");
  { RunFolder("given_up/kept").hold(world); }
  CHECK(fs::is_directory("given_up/kept"));
  { RunFolder("given_up/b/run").hold(world); }
  CHECK(!fs::exists("given_up/b"));
}

TEST_CASE("a run replaces files of an earlier run, and no others") {
  fs::remove_all("others");
  World world;
  for (const std::string name : {"config.toml", "metrics.jsonl", "latest", "report.html", "step1.txt"}) {
    CAPTURE(name);
    const std::string folder = "others/of_" + name, file = folder + "/" + name;
    write_text(file, "mine");
    CHECK(test::error_of([&] { RunFolder(folder).hold(world); }) ==
          file +
              ": was not written by a run, and this run would replace it: choose another run.dir, or "
              "move it away");
    CHECK(test::read_file(file) == "mine");
    fs::remove(file);
    RunFolder run(folder);
    run.hold(world);
    run.begin("a = 1\n");
    write_text(file, test::read_file(folder + "/config.toml"));
  }
  RunFolder again("others/of_config.toml");
  again.hold(world);
  again.begin("a = 2\n");
  CHECK(test::read_file("others/of_config.toml/config.toml").ends_with("resolved it.\na = 2\n"));
}

TEST_CASE("a folder that cannot be written stops the run before it reads its data") {
  if (geteuid() == 0) return test::skip("root may write everywhere");
  World world;
  fs::create_directories("read_only");
  fs::permissions("read_only", fs::perms::owner_read | fs::perms::owner_exec);
  CHECK(test::error_of([&] { RunFolder("read_only").hold(world); }) ==
        "read_only: cannot write into this folder: Permission denied: choose another run.dir");
  CHECK(test::error_of([&] { RunFolder("read_only/run").hold(world); }) ==
        "read_only/run: cannot create this folder: Permission denied");
  fs::permissions("read_only", fs::perms::owner_all);
}

TEST_CASE("a config in the run folder that no run wrote is kept") {
  const test::Workshop workshop("own_config");
  const std::string config = test::read_file(workshop.file("config.toml"));
  CHECK(workshop.train(1, "--run.dir=.").output ==
        "train: ./config.toml: was not written by a run, and this run would replace it: choose another "
        "run.dir, or move it away\n");
  CHECK(test::read_file(workshop.file("config.toml")) == config);
}

TEST_CASE("a run refuses the folder of an active run") {
  const test::Workshop workshop("two_runs");
  const std::string unfinished = workshop.file("run/step-2.tmp");
  std::filesystem::create_directories(unfinished);
  std::optional<FolderLock> at_work(std::in_place, workshop.file("run"), "it is held");
  at_work->take();
  const test::Finished refused = workshop.train(1, "--run.dir=run");
  CHECK(refused.exit_code == 1);
  CHECK_MESSAGE(refused.output.find("run: another run is using this folder") != std::string::npos,
                refused.output);
  CHECK(std::filesystem::exists(unfinished));
  at_work.reset();
  const test::Finished run = workshop.train(1, "--run.dir=run");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  CHECK(!std::filesystem::exists(unfinished));
}
