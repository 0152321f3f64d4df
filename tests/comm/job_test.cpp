#include "comm/job.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "comm/watchdog.h"
#include "runtime/check.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Texts = std::vector<std::string>;

Texts names_of(const std::vector<Host>& hosts) {
  Texts names;
  for (const Host& host : hosts) names.push_back(str(host.name, ':', host.ranks));
  return names;
}

// Notes its arguments but for the file of starts, which it removes as a rank does. It fails for a host that
// the file "lost" names, and else has the exit codes of the file "codes" one after the other, then 0.
constexpr const char* kMpirun =
    "#!/bin/sh\n"
    "cd \"$(dirname \"$0\")\"\n"
    "for word; do\n"
    "  case $word in --rank-starts=*) rm -f \"${word#*=}\" ;; *) printf '%s ' \"$word\" ;; esac\n"
    "done >>calls\n"
    "echo >>calls\n"
    "case $* in *--end-ranks*)\n"
    "  for host in $(cat lost); do case $* in *\"--host $host:\"*) exit 255 ;; esac; done\n"
    "  exit 0 ;;\n"
    "esac\n"
    "code=$(head -n 1 codes)\n"
    "sed -i 1d codes\n"
    "exit ${code:-0}\n";

// Puts a folder with an mpirun that starts nothing on the PATH.
class FakeMpirun {
 public:
  FakeMpirun() : before_(std::getenv("PATH")) {
    std::filesystem::create_directory(folder_);
    std::ofstream(folder_ + "/mpirun") << kMpirun;
    std::filesystem::permissions(folder_ + "/mpirun", std::filesystem::perms::owner_all);
    setenv("PATH", (std::filesystem::absolute(folder_).string() + ':' + before_).c_str(), 1);
  }
  ~FakeMpirun() { setenv("PATH", before_.c_str(), 1); }
  FakeMpirun(const FakeMpirun&) = delete;
  FakeMpirun& operator=(const FakeMpirun&) = delete;

  // Runs a job with these exit codes and hosts that are lost after the first start. Returns its exit code.
  int run(const Job& job, const std::string& codes, const std::string& lost = "") {
    std::ofstream(folder_ + "/codes") << codes;
    std::ofstream(folder_ + "/lost") << lost;
    std::filesystem::remove(folder_ + "/calls");
    said.str("");
    return run_job(job, said);
  }
  // The arguments of each start of ranks.
  Texts starts() const {
    Texts found;
    std::istringstream in(test::read_file(folder_ + "/calls"));
    for (std::string line; std::getline(in, line);)
      if (line.find("--end-ranks") == line.npos) found.push_back(line);
    return found;
  }
  std::ostringstream said;

 private:
  const std::string folder_ = "fake_mpirun", before_;
};

Job job_on(const std::vector<Host>& hosts, int ranks, int restarts) {
  return {.ranks = ranks,
          .hosts = hosts,
          .restarts = restarts,
          .options = "--ranks",
          .arguments = {"begin"},
          .arguments_again = [] { return Texts{"resume"}; }};
}

}  // namespace

TEST_CASE("hosts have a number of ranks each, or share them equally") {
  CHECK(names_of(parse_hosts("h1:4,h2:2", 6)) == Texts{"h1:4", "h2:2"});
  CHECK(names_of(parse_hosts("h1,10.0.0.2", 8)) == Texts{"h1:4", "10.0.0.2:4"});
  for (const auto& [list, ranks, message] : std::vector<std::tuple<const char*, int, const char*>>{
           {"", 2, "--hosts is empty"},
           {"h1,h2", 3, "3 ranks do not divide evenly among 2 hosts"},
           {"h1:1,h2:1", 4, "--hosts has places for 2 ranks, but --ranks is 4"},
           {"h1:2,h2", 4, "give each host its number of ranks, or none"},
           {"h1:x", 1, "must be a host and its number of ranks"},
           {"h1:0", 1, "must be a host and its number of ranks"},
           {":2", 2, "not the name of a host"},
           {"h1;id", 2, "not the name of a host"}}) {
    CAPTURE(list);
    CHECK_THROWS_WITH_AS(parse_hosts(list, ranks), doctest::Contains(message), Error);
  }
}

TEST_CASE("a job continues on as many ranks, or on a power of two") {
  CHECK(ranks_on({}, 6) == 6);
  CHECK(ranks_on({{"h1", 4}, {"h2", 4}}, 8) == 8);
  CHECK(ranks_on({{"h1", 4}, {"h2", 4}}, 6) == 6);
  CHECK(ranks_on({{"h1", 4}, {"h2", 2}}, 8) == 4);
  CHECK(ranks_on({{"h1", 3}}, 8) == 2);
  CHECK(ranks_on({{"h1", 1}}, 8) == 1);
  CHECK(mpirun_command({}, 4) == "mpirun -np 4");
  CHECK(mpirun_command({{"h1", 2}, {"h2", 2}}, 4) == "mpirun -np 4 --host h1:2,h2:2");
}

TEST_CASE("a job starts again when it loses ranks, as often as it may, and not after an error") {
  FakeMpirun mpirun;
  const auto starts = [&] { return mpirun.starts().size(); };
  CHECK(mpirun.run(job_on({}, 4, 3), "0") == 0);
  CHECK(starts() == 1);
  CHECK(mpirun.said.str().empty());
  CHECK(mpirun.run(job_on({}, 4, 3), "1\n") == 1);
  CHECK(starts() == 1);
  CHECK(mpirun.run(job_on({}, 4, 3), "75\n") == 75);
  CHECK(starts() == 1);

  CHECK(mpirun.run(job_on({}, 4, 3), str("137\n", kLostRanks, "\n0\n")) == 0);
  const Texts found = mpirun.starts();
  REQUIRE(found.size() == 3);
  CHECK(found[0].starts_with("-np 4 "));
  CHECK(found[0].ends_with(" begin "));
  CHECK(found[1].ends_with(" resume "));
  CHECK(found[2].ends_with(" resume "));
  CHECK(mpirun.said.str() ==
        "train: a rank was ended by signal 9; restart 1 of 3, on 4 ranks\n"
        "train: ranks were lost; restart 2 of 3, on 4 ranks\n");

  CHECK(mpirun.run(job_on({}, 4, 2), "137\n137\n139\n0\n") == 139);
  CHECK(starts() == 3);
  CHECK(mpirun.said.str().ends_with("signal 11; none of --restarts 2 is left\n"));
  CHECK(mpirun.run(job_on({}, 4, 0), "137\n0\n") == 137);
  CHECK(starts() == 1);
}

TEST_CASE("a job continues on the hosts that answer, and on all of them once they do again") {
  FakeMpirun mpirun;
  const std::vector<Host> hosts{{"h1", 2}, {"h2", 2}, {"h3", 2}, {"h4", 2}};
  CHECK(mpirun.run(job_on(hosts, 8, 3), "1\n0\n", "h2") == 0);
  Texts found = mpirun.starts();
  REQUIRE(found.size() == 2);
  CHECK(found[0].starts_with("-np 8 --host h1:2,h2:2,h3:2,h4:2 "));
  CHECK(found[1].starts_with("-np 4 --host h1:2,h3:2,h4:2 "));
  CHECK(found[1].ends_with(" resume "));
  CHECK(mpirun.said.str() == "train: host h2 lost; restart 1 of 3, on 4 ranks\n");

  CHECK(mpirun.run(job_on(hosts, 8, 3), "137\n0\n") == 0);
  found = mpirun.starts();
  REQUIRE(found.size() == 2);
  CHECK(found[1].starts_with("-np 8 --host h1:2,h2:2,h3:2,h4:2 "));

  // A host that was lost before is no reason to start again after an error.
  CHECK(mpirun.run(job_on(hosts, 8, 3), "137\n1\n0\n", "h2 h3") == 1);
  CHECK(mpirun.starts().size() == 2);
  CHECK(mpirun.said.str() == "train: hosts h2, h3 lost; restart 1 of 3, on 4 ranks\n");

  CHECK(mpirun.run(job_on({{"h1", 2}}, 2, 3), "137\n0\n", "h1") == 137);
  CHECK(mpirun.starts().size() == 1);
  CHECK(mpirun.said.str() == "train: host h1 lost; no host is left\n");
}
