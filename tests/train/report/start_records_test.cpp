#include "train/report/start_records.h"

#include <filesystem>

#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const std::string kPath = "starts.jsonl";

const StartRecord kStart{.step = 7,
                         .time = 1764340000.125,
                         .version = "0.1, revision 5a6d644",
                         .command = "train 'a b.toml' --run.dir=\"x\"",
                         .ranks = 3,
                         .hosts = {{"node1", 2, "2 x NVIDIA H200"}, {"node2", 1, "cpu, 4 threads"}}};

}  // namespace

TEST_CASE("starts are read as they were written, and old folders have none") {
  std::filesystem::remove(kPath);
  CHECK(read_starts(kPath).empty());
  StartRecord later = kStart;
  later.step = 9;
  write_whole_file(kPath, lines_of({kStart, later}));
  CHECK(read_starts(kPath) == std::vector{kStart, later});
  CHECK(starts_before(9, kPath) == std::vector{kStart});  // the steps of the other are repeated
}

TEST_CASE("a damaged line of starts.jsonl is an error that names it, and before a resume a warning") {
  const auto error = [](const std::string& line) {
    write_whole_file(kPath, lines_of({kStart}) + line + '\n');
    CHECK(starts_before(100, kPath).empty());
    return test::error_of([] { read_starts(kPath); });
  };
  CHECK(error("[1]").starts_with(kPath + ":2: must be a JSON object"));
  CHECK(error("{\"step\":0").starts_with(kPath + ":2: "));
  std::string line = lines_of({kStart});
  line.pop_back();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    changed.replace(changed.find(from), from.size(), to);
    return error(changed);
  };
  CHECK(with("\"step\":7", "\"step\":-1").find(":2: step is -1") != std::string::npos);
  CHECK(with("\"ranks\":3", "\"ranks\":[]").find(":2: ranks is []") != std::string::npos);
  CHECK(with("1764340000.125", "1e300").find(":2: time is 1e+300") != std::string::npos);
  CHECK(with("\"0.1, revision 5a6d644\"", "null").find(":2: version is null") != std::string::npos);
}

TEST_CASE("ranks are counted by host, and a GPU that they share once") {
  const std::string gpu = "NVIDIA H200";
  CHECK(hosts_of({{"a", gpu, "1", 8}, {"b", gpu, "1", 8}, {"a", gpu, "2", 8}, {"b", gpu, "1", 8}}) ==
        std::vector<StartHost>{{"a", 2, "2 x NVIDIA H200"}, {"b", 2, "NVIDIA H200"}});
  CHECK(hosts_of({{"a", "EPYC", "", 4}, {"a", "EPYC", "", 4}, {"a", "EPYC", "", 1}}) ==
        std::vector<StartHost>{{"a", 3, "EPYC, 2 x 4 threads, 1 thread"}});
}

TEST_CASE("hosts are named, and many equal ones counted") {
  CHECK(describe_hosts({{"a", 2, "x"}, {"b", 2, "y"}}) == "a: x; b: y");
  CHECK(describe_hosts({{"a", 2, "x"}, {"b", 2, "x"}}) == "2 hosts, each x");
  CHECK(describe_hosts({{"a", 2, "x"}}) == "a: x");
}
